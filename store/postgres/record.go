package postgres

import (
	"context"
	"time"

	"quorate/jobs"
	"quorate/store"
)

// An endedRow is a tick that never ran, as quorate.record reads it.
type endedRow struct {
	Job      string    `json:"job"`
	Due      time.Time `json:"due"`
	Attempt  int       `json:"attempt"`
	Trigger  string    `json:"trigger"`
	Status   string    `json:"status"`
	Reason   string    `json:"reason"`
	Error    string    `json:"error"`
	Lock     string    `json:"lock"`
	Replica  string    `json:"replica"`
	Revision string    `json:"revision"`
}

func (s *Store) Record(ctx context.Context, ended ...jobs.Run) ([]jobs.Run, error) {
	if len(ended) == 0 {
		return nil, nil
	}
	rows := make([]endedRow, 0, len(ended))
	for _, r := range ended {
		if err := store.CheckEnded(r); err != nil {
			return nil, err
		}
		rows = append(rows, endedRow{
			r.Job, store.Instant(r.Due), r.Attempt, string(r.Trigger), string(r.Status), string(r.Reason),
			store.Text(r.Error), store.Text(r.Lock), store.Text(r.Replica), store.Text(r.Revision),
		})
	}
	return many(ctx, s, scanRun, `SELECT `+columns+`, r.lease_until FROM quorate.record($1) r ORDER BY r.id`, rows)
}

// Reap makes the partitions of the months to come, too: every replica reaps all
// the time, which is as often as a calendar needs.
func (s *Store) Reap(ctx context.Context) ([]jobs.Run, error) {
	if _, err := s.pool.Exec(ctx, `SELECT quorate.make_months()`); err != nil {
		return nil, s.fault(ctx, err)
	}
	return many(ctx, s, scanRun, `SELECT `+columns+`, r.lease_until FROM quorate.reap() r ORDER BY r.id`)
}
