module pillion.dev/examples/plugin

go 1.21
