package vibrant_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant"
	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/internal/language/demomodel"
)

// TestSeveralDevicesAnswerAsOne divides the demo model between two CPU devices.
func TestSeveralDevicesAnswerAsOne(t *testing.T) {
	var answers []string
	for _, devices := range [][]string{{"cpu"}, {"cpu", "cpu"}} {
		m, err := vibrant.OpenBytes(context.Background(), demomodel.GGUF(), vibrant.WithDevices(devices...), vibrant.WithContext(512))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		answers = append(answers, read(t, newSession(t, m, vibrant.WithGeneration(greedy())).Send(context.Background(), "What is Vibrant?")))
		if info := m.Info(); info.Device.ID != strings.Join(devices, ",") {
			t.Errorf("said to run on %q", info.Device.ID)
		}
	}
	if answers[0] != answers[1] || len(answers[0]) < 20 {
		t.Errorf("%q on one device, %q on two", answers[0], answers[1])
	}
}

// TestWholeLayersOnSeveralDevicesAnswerAsOne gives each of two CPU devices half of the demo model's layers.
func TestWholeLayersOnSeveralDevicesAnswerAsOne(t *testing.T) {
	var answers []string
	for _, options := range [][]vibrant.Option{{vibrant.WithDevice("cpu")}, {vibrant.WithDevices("cpu", "cpu"), vibrant.WithLayerSplit()}} {
		m, err := vibrant.OpenBytes(context.Background(), demomodel.GGUF(), append(options, vibrant.WithContext(512))...)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		answers = append(answers, read(t, newSession(t, m, vibrant.WithGeneration(greedy())).Send(context.Background(), "What is Vibrant?")))
	}
	if answers[0] != answers[1] || len(answers[0]) < 20 {
		t.Errorf("%q on one device, %q on two", answers[0], answers[1])
	}
}

// TestFitOfSeveralDevicesIsEachOnes compares what is foretold of two devices with what they take.
func TestFitOfSeveralDevicesIsEachOnes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, testmodel.Random(testmodel.Tiny), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, options := range [][]vibrant.Option{{vibrant.WithDevices("cpu", "cpu")}, {vibrant.WithDevices("cpu", "cpu"), vibrant.WithLayerSplit()}} {
		checkFitOfTwo(t, path, options)
	}
}

func checkFitOfTwo(t *testing.T, path string, options []vibrant.Option) {
	t.Helper()
	fit, err := vibrant.PredictFit(path, options...)
	if err != nil {
		t.Fatal(err)
	}
	m, err := vibrant.Open(context.Background(), path, options...)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if got := m.Info().Memory; got != fit.Memory {
		t.Errorf("predicted %+v, are %+v", fit.Memory, got)
	}
	var sum int64
	for _, d := range fit.Devices {
		sum += d.Memory.Total()
	}
	if len(fit.Devices) != 2 || sum != fit.Memory.Total() || !fit.Fits {
		t.Errorf("%+v", fit)
	}
}

func TestDevicesThatCannotShareAModelAreErrors(t *testing.T) {
	data := testmodel.Random(testmodel.Tiny)
	for names, want := range map[string]error{
		"cpu,tpu": vibrant.ErrUnknownDevice, "auto,cpu": vibrant.ErrUnknownDevice, "cuda,cuda:0": vibrant.ErrUnknownDevice, "cuda:1,cuda:1": vibrant.ErrUnknownDevice,
		"gpu:1,cuda:1": vibrant.ErrUnknownDevice, "cuda:0, CUDA:0": vibrant.ErrUnknownDevice, "cuda:0,cuda:+1": vibrant.ErrUnknownDevice,
		"cpu,":        vibrant.ErrUnknownDevice,
		"cpu,cpu,cpu": nil, "cuda:0,cuda:99": nil,
	} {
		m, err := vibrant.OpenBytes(context.Background(), data, vibrant.WithDevice(names))
		if err == nil {
			m.Close()
		}
		if err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v", names, err)
		}
	}
	if _, err := vibrant.OpenBytes(context.Background(), data, vibrant.WithDevices("cuda:98", "cuda:99")); !errors.Is(err, gpu.ErrNoDevice) && !errors.Is(err, gpu.ErrNotCompiled) {
		t.Errorf("fewer devices than asked: %v", err)
	}
	_, err := vibrant.OpenBytes(context.Background(), data, vibrant.WithDevices("cpu", "cuda:99"))
	if !errors.Is(err, gpu.ErrNotCompiled) && (!errors.Is(err, gpu.ErrNoDevice) || !strings.Contains(err.Error(), "1 of 2 devices that were asked for are here: ")) {
		t.Errorf("fewer devices than asked: %v", err)
	}
}
