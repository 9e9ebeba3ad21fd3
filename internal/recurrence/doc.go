// Package recurrence computes the due times of schedules: five-field cron expressions, @hourly and the like, and
// @every, in a time zone, with exclusions and bounds (EFF-03). It reads no clock.
//
// Daylight saving (docs/effects.md): an expression with fixed hours names times of the local day. A local time that does
// not exist is due at the first instant after the gap, and one that occurs twice is due once, the first time. An
// expression whose hour is a wildcard or has a step follows elapsed time: each instant whose local time matches is due.
package recurrence
