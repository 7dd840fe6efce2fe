package demomodel

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
)

// The linker drops both from a program that does not ask for them.
var (
	//go:embed testdata/questions.json
	questionsJSON []byte
	//go:embed testdata/golden.json
	goldenJSON []byte
)

// Question is one item of the held-out evaluation: the corpus that the model was trained on does not contain it.
type Question struct {
	Text    string   `json:"q"`
	History []string `json:"history"` // messages sent before it in the same conversation
	Accept  []string `json:"accept"`  // regular expressions of right answers: any one is enough, case does not matter
	Kind    string   `json:"kind"`    // fact, follow, talk, math, units, words; unknown is to be declined, probe answered right or declined

	right []*regexp.Regexp
}

// Questions returns the held-out questions.
func Questions() ([]Question, error) { return parseQuestions(questionsJSON) }

func parseQuestions(data []byte) ([]Question, error) {
	var questions []Question
	if err := json.Unmarshal(data, &questions); err != nil {
		return nil, fmt.Errorf("demomodel: questions: %w", err)
	}
	for i := range questions {
		q := &questions[i]
		for _, pattern := range q.Accept {
			re, err := regexp.Compile("(?i)" + pattern)
			if err != nil {
				return nil, fmt.Errorf("demomodel: question %q: %w", q.Text, err)
			}
			q.right = append(q.right, re)
		}
	}
	return questions, nil
}

// Right tells whether the answer is accepted.
func (q Question) Right(answer string) bool {
	for _, re := range q.right {
		if re.MatchString(answer) {
			return true
		}
	}
	return false
}

// Golden is the answer to one of the questions, computed in float64: every build has to give the same tokens.
type Golden struct {
	Text        string    `json:"q"`
	PromptIDs   []int32   `json:"prompt_ids"`   // the question in the chat template
	IDs         []int32   `json:"ids"`          // greedy, the end token included
	LeastLead   float64   `json:"least_lead"`   // by which logit the closest of these tokens led the second
	FirstLogits []float64 `json:"first_logits"` // of ids 0, 1, ... after the prompt
}

// GoldenAnswers returns the golden answers.
func GoldenAnswers() ([]Golden, error) {
	var answers []Golden
	if err := json.Unmarshal(goldenJSON, &answers); err != nil {
		return nil, fmt.Errorf("demomodel: golden answers: %w", err)
	}
	return answers, nil
}
