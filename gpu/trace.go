package gpu

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// traceEvent is one of the Trace Event Format, which Perfetto and Chrome's tracing page open.
type traceEvent struct {
	Name     string         `json:"name"`
	Phase    string         `json:"ph"` // X: a span; M: a name of what follows
	Process  int            `json:"pid"`
	Track    int            `json:"tid"`
	Start    float64        `json:"ts"` // microseconds
	Took     *float64       `json:"dur,omitempty"`
	Category string         `json:"cat,omitempty"`
	Args     map[string]any `json:"args,omitempty"`
}

// WriteTrace waits for the work enqueued so far and writes it as a trace that Perfetto (ui.perfetto.dev) opens: a track a stream, a
// span for each operation with its kernel, bytes and percent of the roofline, above it a span for each name.
func (p *Profile) WriteTrace(w io.Writer) error {
	if err := p.collect(); err != nil {
		return fmt.Errorf("gpu: trace: %w", err)
	}
	rate, err := p.copyRate()
	if err != nil {
		return err
	}
	p.mu.Lock()
	records, dropped := slices.Clone(p.records), p.dropped
	p.mu.Unlock()
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, `{"displayTimeUnit":"ns","otherData":{"device":%q,"dropped":%d},"traceEvents":[`, p.dev.info.Name, dropped)
	first := true
	emit := func(e traceEvent) error {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if !first {
			out.WriteByte(',')
		}
		first = false
		out.WriteByte('\n')
		_, err = out.Write(line)
		return err
	}
	span := func(name, category string, stream int, start, end time.Duration, args map[string]any) error {
		took := microseconds(end - start)
		return emit(traceEvent{Name: name, Category: category, Phase: "X", Track: stream, Start: microseconds(start), Took: &took, Args: args})
	}
	if err := emit(traceEvent{Name: "process_name", Phase: "M", Args: map[string]any{"name": p.dev.info.ID + " " + p.dev.info.Name}}); err != nil {
		return err
	}
	names := map[int]*openNames{}
	for _, r := range records {
		open := names[r.stream]
		if open == nil {
			open = &openNames{}
			names[r.stream] = open
			title := traceEvent{Name: "thread_name", Phase: "M", Track: r.stream, Args: map[string]any{"name": fmt.Sprintf("stream %d", r.stream)}}
			if err := emit(title); err != nil {
				return err
			}
		}
		// Spans of names end before the first operation outside them: they are written then.
		err := open.move(r.Names, r.Start, func(name string, start, end time.Duration) error {
			return span(name, "name", r.stream, start, end, nil)
		})
		if err != nil {
			return err
		}
		open.end = r.Start + r.Took
		args := map[string]any{"bytes": r.Bytes}
		if r.Kernel != "" {
			args["kernel"] = r.Kernel
		}
		if percent := roofline(r.Op, r.Bytes, r.Took, rate); percent > 0 {
			args["percent of roofline"] = percent
		}
		if err := span(r.Op, "operation", r.stream, r.Start, open.end, args); err != nil {
			return err
		}
	}
	for stream, open := range names {
		err := open.move(nil, 0, func(name string, start, end time.Duration) error { return span(name, "name", stream, start, end, nil) })
		if err != nil {
			return err
		}
	}
	out.WriteString("\n]}\n")
	return out.Flush()
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// openNames are the names that the newest operation of a stream was enqueued under.
type openNames struct {
	names []string
	start []time.Duration
	end   time.Duration // of the newest operation
}

// move closes the names that are not in force any more and opens new ones at a time.
func (o *openNames) move(names []string, at time.Duration, closed func(name string, start, end time.Duration) error) error {
	same := 0
	for same < min(len(names), len(o.names)) && names[same] == o.names[same] {
		same++
	}
	for len(o.names) > same {
		last := len(o.names) - 1
		if err := closed(o.names[last], o.start[last], o.end); err != nil {
			return err
		}
		o.names, o.start = o.names[:last], o.start[:last]
	}
	for _, name := range names[same:] {
		o.names, o.start = append(o.names, name), append(o.start, at)
	}
	return nil
}
