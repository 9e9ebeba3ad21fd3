package definition

import (
	"encoding/json"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/tool"
)

// CheckArguments checks the arguments of a thread, or of a call of a prompt, against the prompt's requiredSchema. The
// error says what is wrong, with one clause for each place. An invalid schema is a mistake in the definition and rejects
// nothing.
func CheckArguments(p *skeinv1.PromptSpec, arguments json.RawMessage) error {
	if p.RequiredSchema == nil {
		return nil
	}
	schema, err := tool.CompileSchema(p.RequiredSchema.Raw)
	if err != nil {
		return nil
	}
	if len(arguments) == 0 || string(arguments) == "null" {
		arguments = json.RawMessage("{}")
	}
	return schema.Validate(string(arguments))
}
