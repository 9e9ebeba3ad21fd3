// Package page has the files of the console's page. They are embedded, so the page needs nothing but the command that serves it.
package page

import (
	"embed"
	"io/fs"
)

//go:generate go run ./generate

// The sources of dist are in src. generate bundles them with the packages that hack/npm/console pins.
//
//go:embed index.html console.css favicon.svg dist
var embedded embed.FS

// Files contains the files of the page under the names that they have in a browser: console.css is served at /console.css. index.html
// is the page itself, at /. console.js.LICENSES.txt has the licences of the packages in console.js.
var Files fs.FS = files{}

type files struct{}

// Open opens a file of the page. The bundle is in a folder of its own, because it is generated.
func (files) Open(name string) (fs.File, error) {
	switch name {
	case "console.js", "console.js.LICENSES.txt":
		return embedded.Open("dist/" + name)
	case "index.html", "console.css", "favicon.svg":
		return embedded.Open(name)
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}
