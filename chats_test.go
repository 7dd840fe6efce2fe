package vibrant

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/internal/language/demomodel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
)

var chatsFor = flag.Duration("chats", 2*time.Second, "how long TestChatsLeaveNothing chats on each device")

// TestChatsLeaveNothing has four users chat with the embedded model, on a fake GPU with a smaller one: conversations of 1 to 12 turns
// at several temperatures, an eighth of the answers cancelled on the way, the oldest turns dropped where the context is full. What is
// held after all is compared with what was held after a fifth of the time. Memory may grow by a twentieth and 4 MiB, a GPU's by 2 MiB.
// An hour: go test -run TestChatsLeaveNothing -v -chats 1h -timeout 0 .
func TestChatsLeaveNothing(t *testing.T) {
	eachDevice(t, func(t *testing.T, device string) {
		m, err := OpenBytes(context.Background(), demomodel.GGUF(), WithDevice(device), WithContext(256))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		d, err := gpu.Open(device)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		chatsLeaveNothing(t, m, d)
	})
	t.Run("fake", func(t *testing.T) { // the path of a GPU: streams, graphs, copies, a pool; few weights, for pure Go computes them
		var words []string
		for i := range 60 {
			words = append(words, fmt.Sprintf("▁w%d", i))
		}
		f, err := gguf.FromBytes(testmodel.Reciter(words...))
		if err != nil {
			t.Fatal(err)
		}
		_, devices := cards(t, 1, 256<<20)
		m, err := openOn(t, f, devices, WithContext(256))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		chatsLeaveNothing(t, m, devices[0])
	})
}

func chatsLeaveNothing(t *testing.T, m *Model, d *gpu.Device) {
	var chats, turns, tokens atomic.Int64
	chatFor := func(span time.Duration) (bytes int64, files int, free int64) {
		end := time.Now().Add(span)
		var users sync.WaitGroup
		for user := range uint64(4) {
			users.Add(1)
			go func() {
				defer users.Done()
				random := rand.New(rand.NewPCG(1, user))
				for time.Now().Before(end) && !t.Failed() {
					chats.Add(1)
					if err := converse(m, random, end, &turns, &tokens); err != nil {
						t.Error(err)
					}
				}
			}()
		}
		users.Wait()
		m.device.Pool().Trim() // what it keeps for later is no leak
		bytes, files = resident(t)
		var err error
		if free, _, err = d.Memory(); err != nil {
			t.Fatal(err)
		}
		return bytes, files, free
	}
	chatFor(*chatsFor / 10)
	before, files, free := chatFor(*chatsFor / 10)
	after, open, now := before, files, free
	mb := []float64{float64(before) / 1e6}
	for range 8 {
		after, open, now = chatFor(*chatsFor / 10)
		mb = append(mb, float64(after)/1e6)
	}
	slope, deviation := trend(mb)
	hour := float64(10*time.Hour) / float64(*chatsFor)
	t.Logf("%d chats, %d turns, %d tokens in %v: MB after each tenth from the second on %.1f, %.1f more an hour with a standard error of %.1f; "+
		"%d files open, then %d (%s kernels); %d bytes free on the device, then %d",
		chats.Load(), turns.Load(), tokens.Load(), *chatsFor, mb, slope*hour, deviation*hour, files, open, d.Info().Backend, free, now)
	if after > before+before/20+4<<20 || open > files {
		t.Errorf("%d bytes before, %d after; %d files open before, %d after", before, after, files, open)
	}
	if !d.Info().HostMemory && now < free-2<<20 {
		t.Errorf("%d bytes of the GPU were free, %d are", free, now)
	}
}

// trend returns the slope of the line through values at 0, 1, 2, ... that least squares give, and its standard error.
func trend(values []float64) (slope, deviation float64) {
	n := float64(len(values))
	middle, mean, spread := (n-1)/2, 0.0, 0.0
	for i, y := range values {
		mean += y / n
		spread += (float64(i) - middle) * (float64(i) - middle)
		slope += (float64(i) - middle) * y
	}
	slope /= spread
	for i, y := range values {
		off := y - mean - slope*(float64(i)-middle)
		deviation += off * off
	}
	return slope, math.Sqrt(deviation / (n - 2) / spread)
}

// converse is one conversation, which ends early where it is time.
func converse(m *Model, random *rand.Rand, end time.Time, turns, tokens *atomic.Int64) error {
	questions := []string{"What is Vibrant?", "How do I build it for an RTX card?", "and for Jetson Orin?", "What is 17 * 23?", "spell cache", "Hello!"}
	g := DefaultGeneration()
	g.Temperature, g.MaxTokens = []float64{0, 0.7, 1.5}[random.IntN(3)], 1+random.IntN(40)
	s, err := m.NewSession(WithGeneration(g), WithContextFull(ContextDrop))
	if err != nil {
		return err
	}
	defer s.Close()
	for left := 1 + random.IntN(12); left > 0 && time.Now().Before(end); left-- {
		ctx, cancel := context.WithCancel(context.Background())
		stop := random.IntN(80) // an answer has at most 40 tokens
		for _, err := range s.Send(ctx, questions[random.IntN(len(questions))]) {
			if err != nil && ctx.Err() == nil {
				cancel()
				return err
			}
			tokens.Add(1)
			if stop--; stop < 0 {
				cancel()
			}
		}
		cancel()
		turns.Add(1)
	}
	return nil
}
