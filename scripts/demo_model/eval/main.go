// Eval asks the embedded model its held-out questions, greedily, through the public package, and prints the score: make demo-eval
// runs it. It fails where the score is below that of the shipped model. It also fails where an answer is not the golden one, token
// for token, though none of its tokens was a close call.
//
//	go run ./scripts/demo_model/eval [-device cpu|cuda] [-m FILE.gguf] [-lora FILE.gguf] [-golden] [-v]
//
// With -lora it says what an adapter leaves of the model's answers: neither golden answers nor a score are asked for.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/vibrant-ml/vibrant"
	"github.com/vibrant-ml/vibrant/internal/language/demomodel"
)

// What the embedded model must reach, in percent.
const (
	leastRight    = 90
	leastDeclined = 95
	leastProbes   = 97 // of probes, which lie beside what the model knows: right or declined
)

const (
	longestAnswer = 160  // tokens
	closeCall     = 1e-3 // tokens that lead by less, in logits, may differ between backends
)

func main() {
	device := flag.String("device", "auto", "auto, cpu, cuda, cuda:N")
	path := flag.String("m", "", "GGUF file (default: the embedded model)")
	lora := flag.String("lora", "", "GGUF file of an adapter")
	goldenOnly := flag.Bool("golden", false, "compare the golden answers only: enough to check a device")
	verbose := flag.Bool("v", false, "print every answer, not only the wrong ones")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *device, *path, *lora, *goldenOnly, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "demo-eval:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, device, path, lora string, goldenOnly, verbose bool) error {
	questions, err := demomodel.Questions()
	if err != nil {
		return err
	}
	if goldenOnly {
		questions = nil
	}
	golden, err := demomodel.GoldenAnswers()
	if err != nil {
		return err
	}
	if lora != "" {
		golden = nil
	}
	model, err := open(ctx, path, lora, device)
	if err != nil {
		return err
	}
	defer model.Close()

	start := time.Now()
	score, err := ask(ctx, model, questions, func(q demomodel.Question, answer string, right bool) {
		if verbose || !right {
			fmt.Fprintf(out, "%-5s %-8s %s\n               %s\n", map[bool]string{true: "ok", false: "WRONG"}[right], q.Kind, strings.Join(messages(q), " | "), answer)
		}
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, kind := range score.kinds() {
		fmt.Fprintf(out, "%-10s %v\n", kind, score.of[kind])
	}
	if !goldenOnly {
		fmt.Fprintf(out, "\nright      %v  (at least %d)\n", score.known(), leastRight)
		fmt.Fprintf(out, "declined   %v  (at least %d)\n", score.declined(), leastDeclined)
		fmt.Fprintf(out, "probes     %v  (at least %d; %d of them declined)\n", score.probes(), leastProbes, score.declinedProbes)
	}

	same, differing, err := compare(ctx, model, golden)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "golden     %v token for token\n", tally{same, len(golden)})
	var wrong int
	for _, d := range differing {
		fmt.Fprintf(out, "           %q: closest token led by %.4f\n", d.Text, d.LeastLead)
		if d.LeastLead > closeCall {
			wrong++
		}
	}
	fmt.Fprintf(out, "%.1f s on %s, kernels in %s\n", time.Since(start).Seconds(), model.Info().Device.ID, model.Info().Device.Backend)
	if wrong > 0 {
		return fmt.Errorf("%d answers differ from the golden ones", wrong)
	}
	if !goldenOnly && lora == "" && !score.passes() {
		return fmt.Errorf("the model falls short of its score")
	}
	return nil
}

func open(ctx context.Context, path, lora, device string) (*vibrant.Model, error) {
	options := []vibrant.Option{vibrant.WithDevice(device)}
	if lora != "" {
		options = append(options, vibrant.WithAdapter(lora, 1))
	}
	if path == "" {
		return vibrant.OpenBytes(ctx, demomodel.GGUF(), options...)
	}
	return vibrant.Open(ctx, path, options...)
}

type tally struct{ right, all int }

func (t tally) percent() float64 { return 100 * float64(t.right) / float64(max(t.all, 1)) }

func (t tally) String() string {
	return fmt.Sprintf("%4d of %4d  %5.1f %%", t.right, t.all, t.percent())
}

// score counts right answers by the kind of question.
type score struct {
	of             map[string]tally
	declinedProbes int
}

func (s score) kinds() []string {
	var names []string
	for kind := range s.of {
		names = append(names, kind)
	}
	slices.Sort(names)
	return names
}

func (s score) known() (sum tally) {
	for kind, t := range s.of {
		if kind != "unknown" && kind != "probe" {
			sum.right += t.right
			sum.all += t.all
		}
	}
	return sum
}

func (s score) declined() tally { return s.of["unknown"] }

func (s score) probes() tally { return s.of["probe"] }

func (s score) passes() bool {
	return s.known().percent() >= leastRight && s.declined().percent() >= leastDeclined && s.probes().percent() >= leastProbes
}

func messages(q demomodel.Question) []string { return append(slices.Clone(q.History), q.Text) }

// ask puts every question, each in a conversation of its own, and reports each answer.
func ask(ctx context.Context, model *vibrant.Model, questions []demomodel.Question, report func(demomodel.Question, string, bool)) (score, error) {
	s := score{of: map[string]tally{}}
	for _, q := range questions {
		answer, _, err := converse(ctx, model, messages(q))
		if err != nil {
			return s, fmt.Errorf("%q: %w", q.Text, err)
		}
		right := q.Right(answer)
		t := s.of[q.Kind]
		t.all++
		if right {
			t.right++
		}
		s.of[q.Kind] = t
		if q.Kind == "probe" && strings.HasPrefix(answer, "I don't know that") {
			s.declinedProbes++
		}
		report(q, answer, right)
	}
	return s, nil
}

// converse sends messages one after the other and returns the answer to the last, as text and ids.
func converse(ctx context.Context, model *vibrant.Model, messages []string) (string, []int32, error) {
	g := vibrant.DefaultGeneration()
	g.Temperature, g.MaxTokens = 0, longestAnswer
	session, err := model.NewSession(vibrant.WithGeneration(g))
	if err != nil {
		return "", nil, err
	}
	defer session.Close()
	var text strings.Builder
	for _, message := range messages {
		text.Reset()
		for token, err := range session.Send(ctx, message) {
			if err != nil {
				return "", nil, err
			}
			text.WriteString(token.Text)
		}
	}
	return text.String(), session.Generated(), nil
}

// compare gives the golden questions and returns how many answers have the golden tokens, and the others.
func compare(ctx context.Context, model *vibrant.Model, golden []demomodel.Golden) (same int, differing []demomodel.Golden, err error) {
	for _, c := range golden {
		_, ids, err := converse(ctx, model, []string{c.Text})
		if err != nil {
			return same, differing, fmt.Errorf("%q: %w", c.Text, err)
		}
		if slices.Equal(ids, c.IDs) || slices.Equal(ids, c.IDs[:len(c.IDs)-1]) { // with or without the end token
			same++
		} else {
			differing = append(differing, c)
		}
	}
	return same, differing, nil
}
