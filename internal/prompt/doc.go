// Package prompt makes the system prompt of a Prompt object (AGT-05): Build puts together what it is made of,
// Render puts the values in. Values are put in once and never looked at again, so that nothing that a person wrote
// can ask for a variable.
package prompt
