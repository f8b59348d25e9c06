//go:build tools

// Prometheus and its tool for rules, at the versions that go.mod names. A module of its own: Prometheus' has
// replace lines, which "go install" refuses.
package tools

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
	_ "github.com/prometheus/prometheus/cmd/promtool"
)
