package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"quorate/jobs"
	"quorate/web"
)

const (
	defaultState = ".quorate"
	addressFile  = "address.json"
)

// An address is where a replica answers, and what lets one in.
type address struct {
	URL   string      `json:"url"`
	Token jobs.Secret `json:"token"`
}

func stateFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "state", defaultState, "the folder `DIR` where dev keeps its state, and its address")
}

func readAddress(state string) (at address, err error) {
	text, err := os.ReadFile(filepath.Join(state, addressFile))
	if err != nil {
		return at, err
	}
	err = json.Unmarshal(text, &at)
	return at, err
}

// A door is how a command finds the replica that it talks to.
type door struct{ url, state string }

func (d *door) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&d.url, "url", "", "a replica's `URL` (default: $QUORATE_URL, or the dev session of --state)")
	stateFlag(cmd, &d.state)
}

// client returns a client for the replica that the flags and the environment name:
// --url and QUORATE_URL with the token in QUORATE_TOKEN, or else a dev session.
func (d *door) client() (*web.Client, error) {
	at := address{URL: d.url, Token: jobs.Secret(os.Getenv("QUORATE_TOKEN"))}
	if at.URL == "" {
		at.URL = os.Getenv("QUORATE_URL")
	}
	session, err := readAddress(d.state)
	switch {
	case at.URL == "" && err != nil:
		return nil, fmt.Errorf("no replica is named and no dev session has run here: start `quorate dev`, or say --url URL (or QUORATE_URL) and QUORATE_TOKEN")
	case at.URL == "":
		at.URL = session.URL
	}
	if at.Token == "" && at.URL == session.URL {
		at.Token = session.Token
	}
	if at.Token == "" {
		return nil, fmt.Errorf("no token for %s: set QUORATE_TOKEN to the [web] token of its config", at.URL)
	}
	return &web.Client{URL: at.URL, Token: at.Token}, nil
}
