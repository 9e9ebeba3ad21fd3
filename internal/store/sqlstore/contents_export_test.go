package sqlstore

func init() {
	add := func(name, text string, args int) {
		Queries[name] = struct {
			Text string
			Args int
		}{text, args}
	}
	add("contents", qContents, 1)
	add("object size", qObjectSize, 1)
	add("forget swept", qForgetSwept, 1)
	add("file usage", qFileUsage, 1)
}
