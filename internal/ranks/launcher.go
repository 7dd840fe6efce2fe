package ranks

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/vibrant-ml/vibrant/internal/digits"
)

// Place is where a process stands among the processes that a launcher started.
type Place struct {
	Rank, Size int
	LocalRank  int    // among those of its host: the number of its GPU there
	Address    string // host:port where rank 0 listens
	Launcher   string // whose variables said so
}

// launcher names the variables of a program that starts processes. Sources: "torchrun (Elastic Launch)", PyTorch; "Environment
// variables", Open MPI; "srun", Slurm; the launchers of MPICH and Intel MPI; LeaderWorkerSet, Kubernetes SIGs.
type launcher struct {
	name              string
	rank, size, local string
	needs             string   // is set where the launcher has started this process, "" for rank or size
	localSize         string   // how many are on this host, "" where the launcher does not say
	hosts             []string // variables that name hosts, that of rank 0 first
	masters           bool     // it sets MASTER_ADDR and MASTER_PORT
}

// launchers are in the order in which they count: torchrun may run under srun or in a pod of a LeaderWorkerSet, mpirun under srun.
var launchers = []launcher{
	{name: "torchrun", rank: "RANK", size: "WORLD_SIZE", local: "LOCAL_RANK", masters: true},
	{name: "mpirun of Open MPI", rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE", local: "OMPI_COMM_WORLD_LOCAL_RANK",
		localSize: "OMPI_COMM_WORLD_LOCAL_SIZE"},
	// A batch script has SLURM_PROCID too, but no step.
	{name: "srun", rank: "SLURM_PROCID", size: "SLURM_STEP_NUM_TASKS", local: "SLURM_LOCALID", needs: "SLURM_STEP_ID",
		hosts: []string{"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"}},
	{name: "mpirun of MPICH", rank: "PMI_RANK", size: "PMI_SIZE", local: "MPI_LOCALRANKID", localSize: "MPI_LOCALNRANKS"},
	{name: "LeaderWorkerSet", rank: "LWS_WORKER_INDEX", size: "LWS_GROUP_SIZE", hosts: []string{"LWS_LEADER_ADDRESS"}},
}

const defaultPort = 29500 // PyTorch's

// FromEnvironment returns what the variables of the first launcher say of which some are set, nil where none are. Half a set
// of variables is an error, which names the missing one.
func FromEnvironment(env func(string) string) (*Place, error) {
	for _, l := range launchers {
		if !l.started(env) {
			continue
		}
		p, err := l.place(env)
		if err != nil {
			return nil, fmt.Errorf("ranks of %s: %w", l.name, err)
		}
		return p, nil
	}
	return nil, nil
}

func (l launcher) started(env func(string) string) bool {
	if l.needs != "" {
		return env(l.needs) != ""
	}
	return env(l.rank) != "" || env(l.size) != ""
}

func (l launcher) place(env func(string) string) (*Place, error) {
	if l.name == "srun" && env(l.size) == "" { // of versions before 21
		l.size = "SLURM_NTASKS"
	}
	p := &Place{Launcher: l.name}
	for _, v := range []struct {
		name string
		to   *int
	}{{l.rank, &p.Rank}, {l.size, &p.Size}, {l.local, &p.LocalRank}} {
		if v.name == "" {
			continue
		}
		text := env(v.name)
		if text == "" {
			return nil, l.missing(env, v.name)
		}
		n, ok := digits.Int(text)
		if !ok {
			return nil, fmt.Errorf("%s is %.40q, want a number of 0 or more", v.name, text)
		}
		*v.to = n
	}
	switch {
	case p.Size < 1 || p.Size > MaxRanks:
		return nil, fmt.Errorf("%s is %d, want 1 to %d", l.size, p.Size, MaxRanks)
	case p.Rank >= p.Size:
		return nil, fmt.Errorf("%s is %d, but %s is %d", l.rank, p.Rank, l.size, p.Size)
	case p.LocalRank > p.Rank:
		return nil, fmt.Errorf("%s is %d, but %s is %d", l.local, p.LocalRank, l.rank, p.Rank)
	}
	var err error
	p.Address, err = l.address(p, env)
	return p, err
}

// missing says that a variable is not set, and which others of the launcher are.
func (l launcher) missing(env func(string) string, variable string) error {
	var set []string
	for _, name := range []string{l.needs, l.rank, l.size, l.local} {
		if name != "" && env(name) != "" {
			set = append(set, name+"="+env(name))
		}
	}
	return fmt.Errorf("%s is not set, beside %s", variable, strings.Join(set, " and "))
}

// address returns where rank 0 listens: MASTER_ADDR and MASTER_PORT, or the host that the launcher names first.
func (l launcher) address(p *Place, env func(string) string) (string, error) {
	host, port := env("MASTER_ADDR"), defaultPort
	given := env("VIBRANT_PORT")
	if text := env("MASTER_PORT"); text != "" && given == "" {
		n, err := parsePort("MASTER_PORT", text)
		if err != nil {
			return "", err
		}
		// torchrun's own store listens there.
		if port = n; l.masters && env("TORCHELASTIC_USE_AGENT_STORE") == "True" {
			port++
		}
	} else if l.masters && given == "" {
		return "", l.missing(env, "MASTER_PORT")
	}
	if given != "" {
		n, err := parsePort("VIBRANT_PORT", given)
		if err != nil {
			return "", err
		}
		port = n
	}
	for _, name := range l.hosts {
		if host == "" {
			host = firstHost(env(name))
		}
	}
	if host == "" && l.localSize != "" && env(l.localSize) == env(l.size) {
		host = "127.0.0.1"
	}
	if host == "" {
		return "", fmt.Errorf("%w; it names the host of rank 0", l.missing(env, "MASTER_ADDR"))
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

func parsePort(name, text string) (int, error) {
	n, ok := digits.Int(text)
	if !ok || n < 1 || n > 65534 {
		return 0, fmt.Errorf("%s is %.40q, want a port of 1 to 65534", name, text)
	}
	return n, nil
}

// firstHost returns the first of a list of hosts as Slurm writes it: "a[07-09,12],b" begins with a07.
func firstHost(list string) string {
	var host strings.Builder
	for depth, skip, i := 0, false, 0; i < len(list); i++ {
		switch c := list[i]; {
		case c == '[':
			depth++
		case c == ']':
			depth, skip = 0, false
		case depth > 0 && (c == '-' || c == ','):
			skip = true
		case c == ',':
			return host.String()
		case !skip:
			host.WriteByte(c)
		}
	}
	return host.String()
}
