package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"quorate/jobs/steps"
)

func migrateCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the store's schema up to date (serve does so by itself)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withConfig(path, func(c *Config) error { return migrate(cmd, c, true) })
		},
	}
	configFlag(cmd, &path)
	status := &cobra.Command{
		Use: "status", Short: "Say how far the store's schema is", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withConfig(path, func(c *Config) error { return migrate(cmd, c, false) })
		},
	}
	configFlag(status, &path)
	target := &cobra.Command{
		Use: "target NAME", Short: "Create the two guard tables in an SQL target", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withConfig(path, func(c *Config) error { return prepareTarget(cmd, c, args[0]) })
		},
	}
	configFlag(target, &path)
	cmd.AddCommand(status, target)
	return cmd
}

func withConfig(path string, do func(*Config) error) error {
	c, err := loadConfig(path, thisWorld())
	if err != nil {
		return err
	}
	return do(c)
}

func migrate(cmd *cobra.Command, c *Config, up bool) error {
	ctx := cmd.Context()
	st, err := openStore(ctx, c)
	if err != nil {
		return err
	}
	defer st.Close()
	before, err := st.Status(ctx)
	if err != nil {
		return fmt.Errorf("[store]: %w", err)
	}
	if up && before.Applied < before.Known {
		if err := st.Migrate(ctx); err != nil {
			return fmt.Errorf("[store]: %w", err)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "the store's schema went from %d to %d\n", before.Applied, before.Known)
		return nil
	}
	if before.Applied < before.Known {
		fmt.Fprintf(cmd.OutOrStdout(), "the store's schema is at %d of %d: run quorate migrate\n", before.Applied, before.Known)
		return &unsuccessfulError{"schema is behind"}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "the store's schema is up to date at %d\n", before.Applied)
	return nil
}

func prepareTarget(cmd *cobra.Command, c *Config, name string) error {
	ctx := context.WithoutCancel(cmd.Context())
	targets, err := steps.Open(ctx, c.targetURLs())
	if err != nil {
		return err
	}
	defer targets.Close()
	if err := targets.Prepare(ctx, name); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "target %s has its guard tables\n", name)
	return nil
}
