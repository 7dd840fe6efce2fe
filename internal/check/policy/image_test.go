package policy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTheDockerfileNamesWhatIsThere reads the Dockerfile where no container engine builds it: what it runs and copies is in the repository,
// or made by a step before, its arguments are read by a script, and what it starts is what is installed.
func TestTheDockerfileNamesWhatIsThere(t *testing.T) {
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	goVersion := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read("go.mod"))[1]
	dist := read("scripts/make-dist.sh")
	var stages, folders, installed []string
	var user, entry string
	for _, line := range strings.Split(strings.ReplaceAll(read("Dockerfile"), "\\\n", " "), "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		switch words[0] {
		case "FROM":
			if image, ok := strings.CutPrefix(words[1], "golang:"); ok && !strings.HasPrefix(image, goVersion+"-") {
				t.Errorf("%s: go.mod wants Go %s", line, goVersion)
			}
			user = ""
			if strings.HasSuffix(words[1], ":nonroot") {
				user = "nonroot"
			}
			if i := slices.Index(words, "AS"); i > 0 {
				stages = append(stages, words[i+1])
			}
		case "ARG":
			if name, _, _ := strings.Cut(words[1], "="); !regexp.MustCompile(`\$\{` + name + `[:}-]`).MatchString(dist) {
				t.Errorf("scripts/make-dist.sh reads no %s", name)
			}
		case "RUN":
			for i, word := range words {
				if script := strings.Trim(word, `";`); strings.HasPrefix(script, "scripts/") {
					if st, err := os.Stat(filepath.Join(root, script)); err != nil || st.Mode()&0o111 == 0 {
						t.Errorf("%s: %v, or it may not be run", script, err)
					}
				}
				if word == "--prefix" {
					folders = append(folders, words[i+1])
				}
			}
		case "COPY":
			if stage, ok := strings.CutPrefix(words[1], "--from="); ok {
				if !slices.Contains(stages, stage) || !slices.Contains(folders, words[2]) {
					t.Errorf("%s: no stage before makes it", line)
				}
				installed = append(installed, words[3])
			} else if words[1] != "." {
				t.Errorf("%s: the scripts find what they need where the whole repository is", line)
			}
		case "USER":
			user = words[1]
		case "ENTRYPOINT":
			var command []string
			if err := json.Unmarshal([]byte(strings.TrimPrefix(line, words[0])), &command); err != nil || len(command) != 1 {
				t.Fatalf("%s: want a list of one, as there is no shell: %v", line, err)
			}
			entry = command[0]
		}
	}
	if user != "nonroot" {
		t.Errorf("the image runs as %q", user)
	}
	if !slices.ContainsFunc(installed, func(folder string) bool { return entry == folder+"/bin/vibrant" }) || !strings.Contains(dist, `"$tree/bin/vibrant"`) {
		t.Errorf("%s is not in %q", entry, installed)
	}

	list := exec.Command("git", "ls-files")
	list.Dir = root
	files, err := list.Output()
	if err != nil {
		t.Skipf("no repository: %v", err)
	}
	for _, left := range strings.Fields(read(".dockerignore")) {
		for _, file := range strings.Fields(string(files)) {
			if file == left || strings.HasPrefix(file, left+"/") {
				t.Errorf(".dockerignore leaves out %s", file)
			}
		}
	}
}

// TestTheDebianPackageIsMadeOfTheArchive holds scripts/nfpm.yaml to the folder that make-dist.sh fills and to what the Makefile sets.
func TestTheDebianPackageIsMadeOfTheArchive(t *testing.T) {
	text := map[string]string{}
	for _, name := range []string{"scripts/nfpm.yaml", "scripts/make-dist.sh", "Makefile"} {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		text[name] = string(data)
	}
	if !strings.Contains(text["scripts/make-dist.sh"], "name=vibrant-$version-linux-$arch\n    tree=build/$name\n") ||
		!strings.Contains(text["scripts/nfpm.yaml"], "- src: build/vibrant-${DIST_VERSION}-linux-${DIST_ARCH}/\n    dst: /usr\n") {
		t.Error("the package's source is not the folder of the archive")
	}
	_, deb, _ := strings.Cut(text["Makefile"], "\ndeb: dist ")
	deb, _, _ = strings.Cut(deb, "\n\n")
	for _, name := range regexp.MustCompile(`\$\{(\w+)\}`).FindAllStringSubmatch(text["scripts/nfpm.yaml"], -1) {
		if !strings.Contains(deb, name[1]+"=") {
			t.Errorf("make deb sets no %s", name[1])
		}
	}
	if !strings.Contains(text["Makefile"], "\nNFPM := github.com/goreleaser/nfpm/v2/cmd/nfpm@v") {
		t.Error("nfpm has no version of its own")
	}
}
