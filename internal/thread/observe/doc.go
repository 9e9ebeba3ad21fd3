// Package observe gives many watchers of a thread its present value and then patches (EVT-02). One goroutine for each
// thread reads the store, however many watch; a thread that nobody watches costs nothing.
//
// A value consists of parts, such as the record and the messages. A watcher chooses some of them, and the parts that
// anybody chose are read. Watchers share the encoded patches. The package does not know what a part means.
//
// Tails hold the newest events of threads whose logs are followed, read once for all followers (EVT-01).
//
// A Feed tells watchers of lists which threads have changed (EVT-04). A Lifecycle tells what happens to threads and sessions
// (STA-06). Each reads the store once for all watchers.
package observe
