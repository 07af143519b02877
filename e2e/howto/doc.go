// Package howto checks the pages of docs/howto: their code is that of the
// examples, and who follows one in an empty folder ends with a program that
// works.
package howto
