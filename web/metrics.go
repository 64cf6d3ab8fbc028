package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"quorate/jobs"
)

// metrics are what Prometheus reads. The registry is our own, so that two servers
// in one process do not share counters.
type metrics struct {
	handler  http.Handler
	runs     *prometheus.CounterVec
	duration *prometheus.HistogramVec
	lag      *prometheus.HistogramVec
	validity prometheus.Histogram
}

func newMetrics(cfg Config) *metrics {
	registry := prometheus.NewRegistry()
	m := &metrics{
		handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorate_runs_total",
			Help: "Ticks that ended on this replica, by how they ended.",
		}, []string{"job", "status", "reason"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "quorate_run_duration_seconds",
			Help:    "How long runs took, from claim to end.",
			Buckets: []float64{.01, .05, .1, .5, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600},
		}, []string{"job"}),
		lag: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "quorate_run_lag_seconds",
			Help:    "How long after its due time a scheduled run began.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 5, 15, 60, 300},
		}, []string{"job"}),
		validity: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "quorate_validity_left_seconds",
			Help:    "How long the lease could still be trusted when the last step had ended.",
			Buckets: []float64{0, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "quorate_build_info", Help: "Always 1; the labels say what runs.",
		ConstLabels: prometheus.Labels{"version": cfg.Version, "go": runtime.Version()},
	})
	build.Set(1)
	up := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "quorate_masters_up", Help: "Redis masters that can vote, as this replica sees it.",
	}, func() float64 {
		_, voting := mastersJSON(cfg.Scheduler.Masters(), time.Now())
		return float64(voting)
	})
	all := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "quorate_masters", Help: "Redis masters that are configured.",
	}, func() float64 { return float64(len(cfg.Scheduler.Masters())) })

	registry.MustRegister(m.runs, m.duration, m.lag, m.validity, build, up, all,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) serve(w http.ResponseWriter, r *http.Request) { m.handler.ServeHTTP(w, r) }

// Ended counts a run that has ended, or a tick that never ran. The scheduler calls
// it once for each row that this replica closed.
func (s *Server) Ended(run jobs.Run) { s.metrics.ended(run) }

func (m *metrics) ended(run jobs.Run) {
	m.runs.WithLabelValues(run.Job, string(run.Status), string(run.Reason)).Inc()
	if run.Started.IsZero() {
		return
	}
	if run.Trigger == jobs.TriggerSchedule && run.Attempt <= 1 {
		m.lag.WithLabelValues(run.Job).Observe(max(0, run.Started.Sub(run.Due).Seconds()))
	}
	// Of a run whose replica vanished, nobody knows when its work ended.
	if run.Status == jobs.Unknown || run.Finished.IsZero() {
		return
	}
	m.duration.WithLabelValues(run.Job).Observe(run.Finished.Sub(run.Started).Seconds())
	if run.Evidence.Masters > 0 {
		m.validity.Observe(run.Evidence.Left.Seconds())
	}
}

func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "ok")
}

// A readiness says whether this replica can run jobs, and what is missing. It is
// told to everyone, so it names no address.
type readiness struct {
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons,omitempty"`
	Voting  int      `json:"masters_voting"`
	Masters int      `json:"masters"`
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	masters, voting := mastersJSON(s.cfg.Scheduler.Masters(), time.Now())
	ready := readiness{Voting: voting, Masters: len(masters)}
	if need := quorum(len(masters)); voting < need {
		ready.Reasons = append(ready.Reasons,
			fmt.Sprintf("quorum: %d of %d masters can vote, %d are needed", voting, len(masters), need))
	}
	if _, err := s.cfg.Store.Now(ctx); err != nil {
		s.log.Warn("not ready: the store does not answer", "err", err)
		ready.Reasons = append(ready.Reasons, "store: does not answer")
	}
	ready.Ready = len(ready.Reasons) == 0
	w.Header().Set("Content-Type", "application/json")
	if !ready.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	json.NewEncoder(w).Encode(ready)
}
