package rest

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
)

const i18nBase = apiBase + "/i18n"

// The one language of the host: that of the labels in the definitions.
const defaultLocale = "en"

// translation is what a locale has for one object: the labels of its definition.
type translation struct {
	Label       string                      `json:"label"`
	PluralLabel string                      `json:"pluralLabel,omitempty"`
	Description string                      `json:"description,omitempty"`
	Fields      map[string]fieldTranslation `json:"fields"`
	Views       map[string]labelled         `json:"_views,omitempty"`
}

type fieldTranslation struct {
	Label   string            `json:"label"`
	Help    string            `json:"help,omitempty"`
	Options map[string]string `json:"options,omitempty"`
}

type labelled struct {
	Label string `json:"label"`
}

func (s *Server) i18nRoutes() []OwnedRoute {
	return []OwnedRoute{
		own(http.MethodGet, i18nBase+"/locales", "List the languages of the host", s.serveLocales),
		own(http.MethodGet, i18nBase+"/translations/{locale}", "Read the texts of a language", s.serveTranslations),
		own(http.MethodGet, i18nBase+"/labels/{object}/{locale}", "Read the labels of an object's fields", s.serveLabels),
	}
}

type localeEntry struct {
	Code      string `json:"code"`
	Label     string `json:"label"`
	IsDefault bool   `json:"isDefault"`
}

func (s *Server) serveLocales(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, envelope{Success: true, Data: map[string]any{
		"locales": []localeEntry{{Code: defaultLocale, Label: "English", IsDefault: true}},
	}})
}

// serveTranslations answers the labels of all objects that the caller may know
// of, and those of the navigation.
func (s *Server) serveTranslations(w http.ResponseWriter, r *http.Request) error {
	locale := r.PathValue("locale")
	if locale != defaultLocale {
		return resourceNotFound(fmt.Sprintf("Locale %s not found", locale))
	}
	objects, err := s.readable(r.Context(), "")
	if err != nil {
		return err
	}
	texts := map[string]translation{}
	for i := range objects {
		texts[objects[i].Name] = translationOf(&objects[i].Schema)
	}
	home := s.app(objects)
	navigation := map[string]labelled{}
	for _, item := range home.Navigation {
		navigation[item.ID] = labelled{item.Label}
	}
	return writeJSON(w, http.StatusOK, envelope{Success: true, Data: map[string]any{
		"locale": locale,
		"translations": map[string]any{
			"objects": texts, "apps": map[string]any{home.Name: map[string]any{"label": home.Label, "navigation": navigation}},
		},
	}})
}

func translationOf(s *object.Schema) translation {
	t := translation{Label: cmp.Or(s.Label, s.Name), PluralLabel: s.PluralLabel, Description: s.Description, Fields: fieldTranslations(s)}
	for key, view := range s.ListViews {
		if t.Views == nil {
			t.Views = map[string]labelled{}
		}
		t.Views[key] = labelled{cmp.Or(view.Label, key)}
	}
	return t
}

func fieldTranslations(s *object.Schema) map[string]fieldTranslation {
	texts := map[string]fieldTranslation{}
	for i := range s.Fields {
		f := &s.Fields[i]
		text := fieldTranslation{Label: f.DisplayLabel(), Help: f.Description}
		for _, option := range f.Options {
			if text.Options == nil {
				text.Options = map[string]string{}
			}
			text.Options[option.Value] = option.Label
		}
		texts[f.Name] = text
	}
	return texts
}

func (s *Server) serveLabels(w http.ResponseWriter, r *http.Request) error {
	name, locale := r.PathValue("object"), r.PathValue("locale")
	if locale != defaultLocale {
		return resourceNotFound(fmt.Sprintf("Locale %s not found", locale))
	}
	d, err := s.describe(r.Context(), name)
	if data.IsCode(err, data.CodeObjectNotFound) {
		return resourceNotFound(fmt.Sprintf("Object %s not found", name))
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, envelope{Success: true, Data: map[string]any{
		"object": name, "locale": locale, "labels": fieldTranslations(&d.Schema),
	}})
}
