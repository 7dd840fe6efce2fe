/* trace.h: what VIBRANT_TRACE has the library say on stderr: words separated by commas. Not installed. */
#ifndef VB_TRACE_H
#define VB_TRACE_H

#ifdef __cplusplus
extern "C" {
#endif

/* Whether VIBRANT_TRACE holds the word: "kernels", "ptx" or "start". */
int vb_trace_asks(const char *word);

/* Says, where the word "start" is held, that a phase of the start is over, and how long after the process began.
 * internal/phase is the same for Go. */
void vb_trace_phase(const char *phase);

#ifdef __cplusplus
}
#endif
#endif
