package core

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// kernelHooks is the prefix of the hooks that only the kernel emits.
const kernelHooks = "kernel:"

// hooks holds the handlers by hook, in the order of their addition. Rounds ask
// for one handler after the other instead of copying the list, so that
// additions and removals take effect in the middle of a round.
type hooks struct {
	mu       sync.Mutex
	last     int
	handlers map[string][]*subscription
}

type subscription struct {
	number int
	plugin string
	handle HookHandler
}

func compareNumber(s *subscription, number int) int { return cmp.Compare(s.number, number) }

// add returns the function that removes the handler again.
func (h *hooks) add(hook, plugin string, handle HookHandler) (remove func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.handlers == nil {
		h.handlers = make(map[string][]*subscription)
	}
	h.last++
	number := h.last
	h.handlers[hook] = append(h.handlers[hook], &subscription{number: number, plugin: plugin, handle: handle})
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if i, found := slices.BinarySearchFunc(h.handlers[hook], number, compareNumber); found {
			h.handlers[hook] = slices.Delete(h.handlers[hook], i, i+1)
		}
	}
}

// next returns the first handler that was added after the given one.
func (h *hooks) next(hook string, after int) (*subscription, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.handlers[hook]
	i, _ := slices.BinarySearchFunc(list, after+1, compareNumber)
	if i == len(list) {
		return nil, false
	}
	return list[i], true
}

// drop removes all handlers of a plugin.
func (h *hooks) drop(plugin string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for hook, list := range h.handlers {
		h.handlers[hook] = slices.DeleteFunc(list, func(s *subscription) bool { return s.plugin == plugin })
	}
}

func hookPhase(hook string) Phase { return PhaseHook + Phase(" "+hook) }

func reservedHook(hook string) bool { return strings.HasPrefix(hook, kernelHooks) }
