// Package sqllog keeps the event log and the positions of its consumers in a
// PostgreSQL or SQLite database, in the tables sys_event and
// sys_event_consumer. DESIGN.md explains positions on PostgreSQL.
package sqllog
