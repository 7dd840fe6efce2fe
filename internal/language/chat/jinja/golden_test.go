package jinja

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vibrant-ml/vibrant/internal/check/testdata"
)

// goldenNow is the clock that the golden renderings were made with.
func goldenNow() time.Time { return time.Date(2024, 7, 26, 12, 34, 56, 0, time.UTC) }

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
	out, err := tpl.Render(m, Options{Now: goldenNow})
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

func TestRendersAsPythonDoes(t *testing.T) {
	data, err := os.ReadFile("testdata/python-cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Vars  json.RawMessage
		Cases []struct {
			Template, Expected string
			Error              bool
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) < 1000 {
		t.Fatalf("%d cases, want at least 1000", len(file.Cases))
	}
	for _, c := range file.Cases {
		got, err := renderJSON(t, c.Template, file.Vars)
		switch {
		case c.Error && err == nil:
			t.Errorf("%s\ngot  %q\nwant an error", c.Template, got)
		case !c.Error && err != nil:
			t.Errorf("%s\ngot  error %v\nwant %q", c.Template, err, c.Expected)
		case err != nil && strings.Contains(err.Error(), "internal error"):
			t.Errorf("%s\n%v", c.Template, err)
		case !c.Error && got != c.Expected:
			t.Errorf("%s\ngot  %q\nwant %q", c.Template, got, c.Expected)
		}
	}
}
