package rest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/objecthost/objecthost/services/data"
)

const jobsPath = dataBase + "/import/jobs"

func (s *Server) transferRoutes() []OwnedRoute {
	const get, post = http.MethodGet, http.MethodPost
	return []OwnedRoute{
		own(get, objectPath+"/export", "Export records as CSV, JSON or JSON lines", s.listed(s.serveExport), flatFamily),
		own(post, objectPath+"/import", "Import rows of JSON, CSV or JSON lines", s.serveImport, flatFamily),
		own(post, objectPath+"/import/jobs", "Import rows in the background", s.serveImportJob, flatFamily),
		own(get, jobsPath, "List one's import jobs", s.serveImportJobs, flatFamily),
		own(get, jobsPath+"/{id}", "Tell how far an import job is", s.serveJobProgress, flatFamily),
		own(get, jobsPath+"/{id}/results", "Report on an import job", s.serveJobResults, flatFamily),
		own(post, jobsPath+"/{id}/cancel", "End an import job", s.serveJobCancel, flatFamily),
		own(post, jobsPath+"/{id}/undo", "Take an import job back", s.serveJobUndo, flatFamily),
	}
}

// listed admits callers that may list the object's records.
func (s *Server) listed(serve handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := s.admit(r, "list"); err != nil {
			return err
		}
		return serve(w, r)
	}
}

// jobStarted is what a new job answers.
type jobStarted struct {
	ID        string         `json:"jobId"`
	Object    string         `json:"object"`
	Status    data.JobStatus `json:"status"`
	Total     int            `json:"total"`
	CreatedAt string         `json:"createdAt"`
}

func (s *Server) serveImportJob(w http.ResponseWriter, r *http.Request) error {
	req, source, err := readImport(r)
	if err != nil {
		return err
	}
	if err := s.admitImport(r, req.Mode); err != nil {
		return err
	}
	job, err := s.data.StartImport(r.Context(), r.PathValue("object"), req, source)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, jobStarted{ID: job.ID, Object: job.Object, Status: job.Status, Total: job.Total, CreatedAt: job.CreatedAt})
}

type jobList struct {
	Jobs []data.ImportJob `json:"jobs"`
}

// maxJobs is the largest page of jobs.
const maxJobs = 200

func (s *Server) serveImportJobs(w http.ResponseWriter, r *http.Request) error {
	params, err := queryParams(r)
	if err != nil {
		return err
	}
	if err := onlyParams(params, "object", "status", "limit", "offset"); err != nil {
		return err
	}
	limit, offset := 50, 0
	for name, n := range map[string]*int{"limit": &limit, "offset": &offset} {
		if text := params.Get(name); text != "" {
			if *n, err = strconv.Atoi(text); err != nil || *n < 0 || *n > 1_000_000 || name == "limit" && (*n < 1 || *n > maxJobs) {
				return invalidRequest(fmt.Sprintf("'limit' must be 1 to %d and 'offset' 0 to 1000000.", maxJobs))
			}
		}
	}
	states := []data.JobStatus{"", data.JobPending, data.JobRunning, data.JobSucceeded, data.JobFailed, data.JobCancelled}
	status := data.JobStatus(params.Get("status"))
	if !slices.Contains(states, status) {
		return invalidRequest("'status' must be pending, running, succeeded, failed or cancelled.")
	}
	jobs, err := s.data.ImportJobs(r.Context(), params.Get("object"), status, limit, offset)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, jobList{jobs})
}

func (s *Server) serveJobProgress(w http.ResponseWriter, r *http.Request) error {
	job, err := s.data.ImportJob(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, job)
}

type jobReport struct {
	data.ImportJob
	Results   []data.ImportRow `json:"results"`
	Truncated bool             `json:"resultsTruncated"`
}

func (s *Server) serveJobResults(w http.ResponseWriter, r *http.Request) error {
	job, rows, cut, err := s.data.ImportResults(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, jobReport{job, rows, cut})
}

func (s *Server) serveJobCancel(w http.ResponseWriter, r *http.Request) error {
	job, err := s.data.CancelImport(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		Success bool `json:"success"`
		data.ImportJob
	}{true, job})
}

func (s *Server) serveJobUndo(w http.ResponseWriter, r *http.Request) error {
	job, undone, err := s.data.UndoImport(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		Success bool   `json:"success"`
		ID      string `json:"jobId"`
		Object  string `json:"object"`
		data.Undone
	}{undone.Failed == 0, job.ID, job.Object, undone})
}
