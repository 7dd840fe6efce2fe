package main

import (
	"encoding/json"
	"io"
)

// writeJSON prints v on one line. HTML is left as it is: the readers are programs, not browsers.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
