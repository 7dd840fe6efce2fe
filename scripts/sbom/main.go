// Command sbom writes what a Go program is made of as SPDX 2.3 in JSON, from what the compiler left in the program (go version -m).
//
//	sbom --version 0.1.0 [--toolkits "cuda12 cuda13"] PROGRAM >sbom.spdx.json
//
// The time is that of SOURCE_DATE_EPOCH. Source: The Linux Foundation, "The Software Package Data Exchange Specification", version 2.3.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

type document struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []pkg          `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type pkg struct {
	ID        string      `json:"SPDXID"`
	Name      string      `json:"name"`
	Version   string      `json:"versionInfo"`
	Location  string      `json:"downloadLocation"`
	Analyzed  bool        `json:"filesAnalyzed"`
	Concluded string      `json:"licenseConcluded"`
	Declared  string      `json:"licenseDeclared"`
	Copyright string      `json:"copyrightText"`
	Comment   string      `json:"comment,omitempty"`
	Refs      []reference `json:"externalRefs,omitempty"`
}

type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

func main() {
	version := flag.String("version", "", "the program's version")
	toolkits := flag.String("toolkits", "", "CUDA toolkits whose runtime lies in libraries beside the program")
	flag.Parse()
	if flag.NArg() != 1 || *version == "" {
		fmt.Fprintln(os.Stderr, "usage: sbom --version V [--toolkits T] PROGRAM")
		os.Exit(2)
	}
	if err := write(os.Stdout, flag.Arg(0), *version, strings.Fields(*toolkits)); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func write(w io.Writer, program, version string, toolkits []string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	seconds := int64(0)
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		if seconds, err = strconv.ParseInt(epoch, 10, 64); err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH=%q is no number of seconds", epoch)
		}
	}
	b, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	d := describe(info, version, toolkits)
	d.Creation.Created = time.Unix(seconds, 0).UTC().Format(time.RFC3339)
	d.Namespace = fmt.Sprintf("https://github.com/vibrant-ml/vibrant/spdx/%s-%x", version, sha256.Sum256(b))
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(d)
}

// describe lists the program, Go's library, the modules, and the runtime of each toolkit.
func describe(info *debug.BuildInfo, version string, toolkits []string) document {
	d := document{Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: "vibrant-" + version,
		Creation: creation{Creators: []string{"Tool: vibrant-sbom"}}}
	add := func(p pkg, relation, from string) {
		if p.Concluded == "" {
			p.Concluded = "NOASSERTION"
		}
		p.Declared, p.Copyright = p.Concluded, "NOASSERTION"
		d.Packages = append(d.Packages, p)
		d.Relationships = append(d.Relationships, relationship{from, relation, p.ID})
	}
	const program = "SPDXRef-vibrant"
	add(pkg{ID: program, Name: info.Main.Path, Version: version, Location: "https://github.com/vibrant-ml/vibrant", Concluded: "MIT OR Apache-2.0",
		Refs: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + info.Main.Path + "@v" + version}}}, "DESCRIBES", d.ID)
	add(pkg{ID: "SPDXRef-go", Name: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go"), Location: "https://go.dev/dl/",
		Concluded: "BSD-3-Clause"}, "CONTAINS", program)
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		add(pkg{ID: "SPDXRef-" + notInIDs.ReplaceAllString(m.Path, "-"), Name: m.Path, Version: m.Version,
			Location: "NOASSERTION", Comment: "go.sum " + m.Sum,
			Refs: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + m.Path + "@" + m.Version}}}, "CONTAINS", program)
	}
	for _, t := range toolkits {
		add(pkg{ID: "SPDXRef-cudart-" + t, Name: "NVIDIA CUDA Runtime (" + t + ")", Version: strings.TrimPrefix(t, "cuda"),
			Location: "https://developer.nvidia.com/cuda-downloads", Comment: "linked into lib/vibrant/" + t + "/libvibrant_cuda.so; NVIDIA's licence for it: " +
				"https://docs.nvidia.com/cuda/eula/"}, "CONTAINS", program)
	}
	return d
}

var notInIDs = regexp.MustCompile(`[^a-zA-Z0-9.-]+`)
