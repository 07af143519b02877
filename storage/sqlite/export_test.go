package sqlite

// OpenLimited is Open with a limit of the WAL that tests can reach.
var OpenLimited = openWith
