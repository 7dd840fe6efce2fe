package jinja

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/vibrant-ml/vibrant/internal/testdata"
)

// renderJSON renders a template with variables given as a JSON object.
func renderJSON(t *testing.T, template string, vars []byte) (string, error) {
	t.Helper()
	tpl, err := Parse(template)
	if err != nil {
		return "", err
	}
	v, err := FromJSON(vars)
	if err != nil {
		t.Fatalf("variables: %v", err)
	}
	m := map[string]Value{}
	v.(*Dict).Each(func(k, v Value) bool {
		m[k.(Str).String()] = v
		return true
	})
	out, err := tpl.Render(m, Options{})
	return out.String(), err
}

// The variables of these cases were written down after the template had changed them: here as they were before.
var varsBefore = map[string]string{
	"array.pop() last":       `{"arr": ["a", "b", "c"]}`,
	"array.pop() with index": `{"arr": ["a", "b", "c"]}`,
	"array.append()":         `{"arr": ["a", "b", "c"]}`,
}

func TestUnitCasesOfOtherEngines(t *testing.T) {
	data, err := os.ReadFile(testdata.Path(t, "chat", "jinja-unit.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			Group, Name, Template, Expected string
			Vars                            json.RawMessage
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) < 265 {
		t.Fatalf("%d cases, want 265", len(file.Cases))
	}
	for _, c := range file.Cases {
		t.Run(c.Group+"/"+c.Name, func(t *testing.T) {
			vars := []byte(c.Vars)
			if v, ok := varsBefore[c.Name]; ok {
				vars = []byte(v)
			}
			got, err := renderJSON(t, c.Template, vars)
			if err != nil {
				t.Fatalf("%s\n%v", c.Template, err)
			}
			if got != c.Expected {
				t.Errorf("%s\ngot  %q\nwant %q", c.Template, got, c.Expected)
			}
		})
	}
}
