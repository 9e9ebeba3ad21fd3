// Package prompt builds the system prompt of a Prompt object (AGT-05). Build combines its parts, and Render inserts the
// values. Inserted values are not parsed again, so nothing that a person wrote can refer to a variable.
package prompt
