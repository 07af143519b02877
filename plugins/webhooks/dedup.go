package webhooks

import (
	"crypto/sha256"
	"encoding/hex"
	"unicode/utf8"

	"github.com/objecthost/objecthost/core/event"
)

// maxDedupKey is the longest dedup key in bytes; dedupPrefix is what a longer
// one keeps of its text before the hash of the whole.
const (
	maxDedupKey = 191
	dedupPrefix = 126
)

// dedupKey names the delivery of one event to one webhook. It holds the event's
// id, so that two changes within one tick of the clock are two deliveries,
// while an event that is read twice is one.
func dedupKey(webhookID string, e *event.Event, k kind) string {
	return fitDedupKey(rawDedupKey(webhookID, e, k))
}

// rawDedupKey is the key before it is made to fit.
func rawDedupKey(webhookID string, e *event.Event, k kind) string {
	if k.bulk {
		return webhookID + ":" + e.Object + ":" + e.Type + ":" + e.ID
	}
	return webhookID + ":" + e.Object + ":" + e.RecordID + ":" + k.action + ":" + event.FormatTime(e.Timestamp) + ":" + e.ID
}

// fitDedupKey shortens a key that does not fit its column to its beginning and
// the hash of the whole. A character that the cut would split goes entirely.
func fitDedupKey(key string) string {
	if len(key) <= maxDedupKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	end := dedupPrefix
	for end > 0 && !utf8.RuneStart(key[end]) {
		end--
	}
	return key[:end] + ":" + hex.EncodeToString(sum[:])
}
