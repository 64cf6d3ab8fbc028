package testenv

import (
	"context"
	"errors"
)

func redisContainer() (body, string, error) { return nil, "", errors.New("no docker") }
func postgresContainer() (server, error)    { return server{}, errors.New("no docker") }
func mariadbContainer() (server, error)     { return server{}, errors.New("no docker") }

var _ = context.Background
