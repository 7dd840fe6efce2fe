package chat

// Templates for files that carry none. Each takes a content that is a string or a list of parts.
const (
	contentMacro = `{%- macro text(content) -%}
{%- if content is string -%}{{ content }}
{%- elif content is not none -%}{%- for part in content -%}{{ part.text if part.text is defined else '' }}{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
`
	// ChatML is the format of Qwen and many others.
	ChatML = contentMacro + `{%- for m in messages -%}
{{- '<|im_start|>' + m.role + '\n' }}{{ text(m.content) }}{{ '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
`
	// Llama3 is the format of Llama 3 Instruct.
	Llama3 = contentMacro + `{{- bos_token -}}
{%- for m in messages -%}
{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}{{ text(m.content)|trim }}{{ '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}{%- endif -%}
`
	// Plain is for models that were never trained to chat: the contents, a line each, for the model to go on from.
	Plain = contentMacro + `{%- for m in messages -%}
{{- text(m.content) }}{{ '\n' if not loop.last or not add_generation_prompt -}}
{%- endfor -%}
`
)

// Builtin returns the template for a file that has none, by the special tokens of its vocabulary: ChatML, Llama3, or
// Plain. Markers that a vocabulary lacks would reach the model letter by letter, so none is better than a wrong one.
func Builtin(has func(token string) bool) (name, source string) {
	switch {
	case has("<|im_start|>") && has("<|im_end|>"):
		return "chatml", ChatML
	case has("<|start_header_id|>") && has("<|end_header_id|>") && has("<|eot_id|>"):
		return "llama3", Llama3
	}
	return "plain", Plain
}
