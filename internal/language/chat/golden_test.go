package chat

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/vibrant-ml/vibrant/internal/check/testdata"
)

func readGolden(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(testdata.Path(t, "chat", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

// goldenNow is the clock that the golden renderings were made with.
func goldenNow() time.Time { return time.Date(2024, 7, 26, 12, 34, 56, 0, time.UTC) }

func TestModelTemplatesRenderAsInPython(t *testing.T) {
	var file struct {
		Scenarios map[string]struct {
			Messages            json.RawMessage
			Tools               json.RawMessage
			AddGenerationPrompt bool `json:"add_generation_prompt"`
		}
		Templates []struct {
			Name, Template string
			BOS            string `json:"bos_token"`
			EOS            string `json:"eos_token"`
			Renders        map[string]struct{ Expected, Error *string }
		}
	}
	readGolden(t, "model-templates-renders.json", &file)
	rendered, refused := 0, 0
	for _, tpl := range file.Templates {
		for scenario, want := range tpl.Renders {
			t.Run(tpl.Name+"/"+scenario, func(t *testing.T) {
				sc := file.Scenarios[scenario]
				data, err := json.Marshal(map[string]json.RawMessage{"messages": sc.Messages, "tools": orNull(sc.Tools)})
				if err != nil {
					t.Fatal(err)
				}
				template, err := New(tpl.Template, Tokens{BOS: tpl.BOS, EOS: tpl.EOS})
				if err != nil {
					t.Fatal(err)
				}
				got, err := template.RenderFile(data, Options{AddGenerationPrompt: sc.AddGenerationPrompt, Now: goldenNow})
				if want.Expected == nil {
					if err == nil {
						t.Fatalf("rendered %q, want the error %q", got, *want.Error)
					}
					// The reference names the class of the error first.
					_, msg, _ := strings.Cut(*want.Error, ": ")
					if !strings.Contains(err.Error(), msg) || !strings.Contains(err.Error(), "line ") {
						t.Fatalf("error %q, want a line and %q", err, msg)
					}
					refused++
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if got != *want.Expected {
					t.Fatalf("got\n%s\nwant\n%s", got, *want.Expected)
				}
				rendered++
			})
		}
	}
	t.Logf("%d rendered, %d refused, as in Python", rendered, refused)
	if rendered+refused < 22*7 {
		t.Errorf("%d of at least %d", rendered+refused, 22*7)
	}
}

// testdata/renders.py says how Python rendered these; null is where it raises an error.
func TestConversationsWithToolsAndThinkingRenderAsInPython(t *testing.T) {
	type source struct {
		Name, Template string
		BOS            string `json:"bos_token"`
		EOS            string `json:"eos_token"`
	}
	var models struct{ Templates []source }
	var cases struct{ Cases []source }
	readGolden(t, "model-templates-renders.json", &models)
	readGolden(t, "chat-template-cases.json", &cases)
	data, err := os.ReadFile("testdata/renders.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Scenarios map[string]struct {
			Messages, Tools json.RawMessage
			Extra           map[string]any
		}
		Renders map[string]map[string]*string
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, s := range append(models.Templates, cases.Cases...) {
		for scenario, want := range file.Renders[s.Name] {
			compared++
			t.Run(s.Name+"/"+scenario, func(t *testing.T) {
				sc := file.Scenarios[scenario]
				data, err := json.Marshal(map[string]json.RawMessage{"messages": sc.Messages, "tools": orNull(sc.Tools)})
				if err != nil {
					t.Fatal(err)
				}
				template, err := New(s.Template, Tokens{BOS: s.BOS, EOS: s.EOS})
				if err != nil {
					t.Fatal(err)
				}
				got, err := template.RenderFile(data, Options{AddGenerationPrompt: true, Extra: sc.Extra, Now: goldenNow})
				switch {
				case want == nil && err == nil:
					t.Fatalf("rendered %q, which Python refuses", got)
				case want != nil && err != nil:
					t.Fatal(err)
				case want != nil && got != *want:
					t.Fatalf("got\n%s\nwant\n%s", got, *want)
				}
			})
		}
	}
	if compared != 90 {
		t.Errorf("%d conversations, want 90", compared)
	}
}

// In each model's template the text of messages, which alone is Cyrillic here, is marked as such, and the template's is not.
func TestModelTemplatesMarkUserText(t *testing.T) {
	var file struct {
		Templates []struct{ Name, Template string }
	}
	readGolden(t, "model-templates-renders.json", &file)
	messages := []Message{NewMessage("user", " Привет "), NewMessage("assistant", "Здравствуйте\n"), NewMessage("user", "Как <дела>?")}
	for _, tpl := range file.Templates {
		t.Run(tpl.Name, func(t *testing.T) {
			template, err := New(tpl.Template, Tokens{BOS: "<s>", EOS: "</s>"})
			if err != nil {
				t.Fatal(err)
			}
			segments, err := template.RenderSegments(messages, Options{AddGenerationPrompt: true, Now: goldenNow})
			if tpl.Name == "MiroThinker.jinja" {
				if err == nil {
					t.Fatal("rendered, though Python refuses more than one message")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			content := 0
			for _, s := range segments {
				letters := strings.IndexFunc(s.Text, func(r rune) bool { return unicode.Is(unicode.Cyrillic, r) }) >= 0
				if letters != s.FromUser {
					t.Errorf("segment %q is from the user: %v", s.Text, s.FromUser)
				}
				if letters {
					content++
				}
			}
			if content != 3 {
				t.Errorf("%d segments of content, want 3", content)
			}
		})
	}
}

func orNull(m json.RawMessage) json.RawMessage {
	if m == nil {
		return json.RawMessage("null")
	}
	return m
}

func TestTemplatesRenderAsInLlamaCpp(t *testing.T) {
	var file struct {
		Cases []struct {
			Name, Template, Expected string
			BOS                      string `json:"bos_token"`
			EOS                      string `json:"eos_token"`
			AddGenerationPrompt      bool   `json:"add_generation_prompt"`
			Messages                 []Message
			Extra                    map[string]any `json:"extra_context"`
			Check                    string         `json:"python_jinja2_check"`
		}
	}
	readGolden(t, "chat-template-cases.json", &file)
	if len(file.Cases) < 33 {
		t.Fatalf("%d cases, want 33", len(file.Cases))
	}
	merged := 0
	for _, c := range file.Cases {
		t.Run(c.Name, func(t *testing.T) {
			template, err := New(c.Template, Tokens{BOS: c.BOS, EOS: c.EOS})
			if err != nil {
				t.Fatal(err)
			}
			opts := Options{AddGenerationPrompt: c.AddGenerationPrompt, Extra: c.Extra, Now: goldenNow}
			got, err := template.Render(c.Messages, opts)
			if err != nil {
				t.Fatal(err)
			}
			if got != c.Expected {
				t.Errorf("got\n%s\nwant\n%s", got, c.Expected)
			}
			if !strings.Contains(c.Check, "system merged") {
				return
			}
			// The messages of these cases are merged already. Take them apart, and see them merged by ourselves.
			merged++
			system, user, ok := strings.Cut(c.Messages[0].Text(), "\n")
			if !ok {
				t.Fatalf("no system text in %q", c.Messages[0].Text())
			}
			apart := append([]Message{NewMessage("system", system), NewMessage("user", user)}, c.Messages[1:]...)
			opts.MergeSystem = true
			got, err = template.Render(apart, opts)
			if err != nil {
				t.Fatal(err)
			}
			if got != c.Expected {
				t.Errorf("merged by MergeSystem: got\n%s\nwant\n%s", got, c.Expected)
			}
		})
	}
	if merged != 6 {
		t.Errorf("%d cases need the system message merged, want 6", merged)
	}
}
