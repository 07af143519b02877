// Package howto holds the programs of docs/howto as examples that the tests
// compile and run.
package howto
