package vibrant

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestModelsPageListsEveryArchitecture(t *testing.T) {
	page, err := os.ReadFile("docs/models.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("| architecture | models | tested against |\n|---|---|---|\n")
	for _, a := range Architectures() {
		fmt.Fprintf(&want, "| `%s` | %s | %s |\n", a.Name, a.Example, a.Tested)
	}
	if !strings.Contains(string(page), want.String()+"\n") {
		t.Errorf("docs/models.md lacks this table:\n%s", want.String())
	}
}
