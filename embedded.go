package vibrant

// embedded returns the GGUF file of the model that this build carries, nil if none.
func embedded() []byte { return nil }
