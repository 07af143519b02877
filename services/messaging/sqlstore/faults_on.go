//go:build faults

package sqlstore

import (
	"os"
	"strings"
)

// fence is the same as without the tag, unless OBJECTHOST_FAULT asks for a defect
// that tests must find: no-fence saves outcomes whoever holds the claim.
func fence(query string) string {
	if os.Getenv("OBJECTHOST_FAULT") != "no-fence" {
		return query
	}
	query = strings.Replace(query, "AND d.claim_token = o.token", "AND o.token IS NOT NULL", 1)
	return strings.Replace(query, "AND claim_token = ?", "AND ? IS NOT NULL", 1)
}

// leaseFence is the same as without the tag, unless OBJECTHOST_FAULT is
// no-fence: then a process acts on ranges whose lease it has lost.
func leaseFence(condition string) string {
	if os.Getenv("OBJECTHOST_FAULT") != "no-fence" {
		return condition
	}
	return "(TRUE OR " + condition + ")"
}
