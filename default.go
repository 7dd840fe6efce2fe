package vibrant

import "sync/atomic"

var defaultModel atomic.Pointer[func() []byte]

// RegisterDefault makes a GGUF file in memory the model that Open, Inspect and the like use for the path "". Package demo
// does so, for programs that import it, with a small model that is embedded in the program; nothing is embedded
// otherwise.
func RegisterDefault(gguf func() []byte) { defaultModel.Store(&gguf) }

// embedded returns the file that was registered, nil if none was.
func embedded() []byte {
	f := defaultModel.Load()
	if f == nil {
		return nil
	}
	return (*f)()
}
