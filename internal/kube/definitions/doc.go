// Package definitions resolves definitions from a cache of their objects: Agents, Prompts, Models, Tools, Effects and
// ThreadEndpoints, with everything that they refer to. Controllers check definitions with the same functions that runs
// use, so that a condition and a run always agree on what is wrong.
package definitions
