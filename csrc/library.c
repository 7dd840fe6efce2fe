/* library.c: finds the CUDA kernels: linked into the program, or in a libvibrant_cuda.so that is looked for once, at
 * the first question for a GPU. If VIBRANT_LIBRARY names a file, this file is the only place. Else the places are, in
 * order: the program's folder, its lib/, the lib/vibrant/ and lib/ of its PREFIX (the program lies in PREFIX/bin), the
 * folder of the library that this is part of and its vibrant/ (for programs elsewhere, such as Python's), and wherever
 * the loader looks. Each folder may have libraries of two CUDA releases: cuda13/ and cuda12/ come first. A
 * library is taken if it was made for this machine, is whole, agrees in ABI number, table and version, and is not for a
 * newer driver than the one here. */
#include "library.h"

#include "driver.h"
#include "trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __linux__

#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "libvibrant_cuda.so"
#define ANOTHER_ABI "has another ABI than this program: build both from one source"

enum { OLDEST_DESCRIPTION = offsetof(vb_library, driver) }; /* its version is there */

/* Weak: NULL where the link has no libvibrant_cuda.a. Hidden: no other library of the process stands in for it. */
const vb_library *vb_linked_library(void) __attribute__((weak, visibility("hidden")));

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const vb_library *found;
static int refused; /* the file that VIBRANT_LIBRARY names */
static char report[4096]; /* the path of what was found, else each place with the reason */

/* Appends "; path: reason" to the report; text that does not fit is left out. */
static void refuse(const char *path, const char *reason) {
    const size_t used = strlen(report);
    snprintf(report + used, sizeof report - used, "%s%s: %s", used > 0 ? "; " : "", path, reason);
}

/* Whether the file has all that its header speaks of: sections, which a library may lack, and segments. */
static bool is_whole(FILE *file, const Elf64_Ehdr *header) {
    if (fseek(file, 0, SEEK_END) != 0) return false;
    const uint64_t size = (uint64_t)ftell(file);
    if (size < header->e_shoff + (uint64_t)header->e_shentsize * header->e_shnum) return false;
    if (fseek(file, (long)header->e_phoff, SEEK_SET) != 0) return false;
    for (int i = 0; i < header->e_phnum; i++) {
        Elf64_Phdr segment;
        if (fread(&segment, sizeof segment, 1, file) != 1 || size < segment.p_offset + segment.p_filesz) return false;
    }
    return true;
}

/* Why the file is no library that the loader may map, else NULL. The loader itself dies of a file that was cut
 * short. */
static const char *damaged(const char *path) {
    struct stat st;
    /* Opening a pipe would wait. */
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) return "is no regular file: name the library itself";
    FILE *file = fopen(path, "rb");
    if (!file) return "cannot be read: let this user read it";
    Elf64_Ehdr header;
    const char *reason = NULL;
    if (fread(&header, sizeof header, 1, file) != 1 || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_type != ET_DYN) {
        reason = "is no shared library of 64 bits: install that of this version";
#if defined(__x86_64__)
    } else if (header.e_machine != EM_X86_64) {
        reason = "is for another processor, not x86-64: install the archive for this one";
#elif defined(__aarch64__)
    } else if (header.e_machine != EM_AARCH64) {
        reason = "is for another processor, not aarch64: install the archive for this one";
#endif
    } else if (!is_whole(file, &header)) {
        reason = "is cut short: copy it again";
    }
    fclose(file);
    return reason;
}

/* Writes why this machine's driver does not serve the library, or "", also where there is no driver to compare. */
static void compare_with_driver(const vb_library *library, char *reason, size_t room) {
    const int needed = (int)library->driver / 1000, version = vb_driver_version(), major = version / 1000;
    reason[0] = 0;
    if (version == 0 || version >= library->driver) return;
    const int used =
        snprintf(reason, room, "needs a driver of CUDA %d, and the driver is of CUDA %d.%d: install driver %s or newer",
            needed, major, version % 1000 / 10, needed >= 13 ? "580" : needed == 12 ? "525" : "450");
    if (major >= 12) snprintf(reason + used, room - (size_t)used, ", or the library of CUDA %d", major);
}

/* Takes the library at a path, or the library that the loader finds by a bare name. The report gets the reason if it
 * does not. */
static int take(const char *path) {
    if (strchr(path, '/')) {
        if (access(path, F_OK) != 0) return 0;
        const char *reason = damaged(path);
        if (reason) return refuse(path, reason), 0;
    }
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *error = dlerror();
        if (strchr(path, '/')) refuse(path, error ? error : "the loader refuses it");
        return 0;
    }
    const vb_library *library = dlsym(handle, "vb_library_of_cuda");
    char reason[160] = "";
    if (!library)
        snprintf(reason, sizeof reason, "holds no CUDA kernels of Vibrant: name libvibrant_cuda.so");
    else if (library->size < OLDEST_DESCRIPTION)
        snprintf(reason, sizeof reason, ANOTHER_ABI);
    else if (strcmp(library->version, vb_version()) != 0)
        snprintf(reason, sizeof reason, "is of version %.40s, this program of %s: install both of one version",
            library->version, vb_version());
    else if (library->abi != VB_ABI || library->size < (int64_t)sizeof *library ||
             library->table_bytes != (int64_t)sizeof(vb_backend))
        snprintf(reason, sizeof reason, ANOTHER_ABI);
    else
        compare_with_driver(library, reason, sizeof reason);
    if (reason[0]) {
        refuse(path, reason);
        dlclose(handle);
        return 0;
    }
    Dl_info info;
    snprintf(report, sizeof report, "%s", dladdr(library, &info) && info.dli_fname ? info.dli_fname : path);
    found = library;
    vb_trace_phase("CUDA kernels loaded");
    return 1;
}

static bool is_same_file(const char *path, const char *other) {
    struct stat a, b;
    return stat(path, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Where the object lies that this is part of, the program or a shared library; "" where the loader does not know. */
static const char *this_object(void) {
    Dl_info info;
    return dladdr(report, &info) && info.dli_fname ? info.dli_fname : "";
}

/* The path without its last name. */
static void cut_name(char *path) {
    char *const slash = strrchr(path, '/');
    path[slash ? slash - path : 0] = 0;
}

/* Looks into a folder below a folder, which is no folder where it is "". */
static bool take_in(const char *folder, const char *below) {
    static const char *const releases[] = {"/cuda13", "/cuda12", ""};
    char path[PATH_MAX + sizeof "/../lib/vibrant/cuda13/" NAME];
    for (size_t i = 0; folder[0] && i < sizeof releases / sizeof *releases; i++) {
        snprintf(path, sizeof path, "%s%s%s/" NAME, folder, below, releases[i]);
        if (take(path)) return true;
    }
    return false;
}

/* Looks near the program, then near the library that this is part of, if that is elsewhere. */
static bool take_near(void) {
    static const char *const folders[] = {"", "/lib", "/../lib/vibrant", "/../lib"};
    enum { FOLDERS = sizeof folders / sizeof *folders };
    char program[PATH_MAX], object[PATH_MAX], place[PATH_MAX + sizeof "/../lib/vibrant"];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = 0;
    cut_name(program);
    for (int i = 0; i < FOLDERS; i++)
        if (take_in(program, folders[i])) return true;
    snprintf(object, sizeof object, "%s", this_object());
    cut_name(object);
    for (int i = 0; i < FOLDERS; i++) {
        snprintf(place, sizeof place, "%s%s", program, folders[i]);
        if (is_same_file(place, object)) return false;
    }
    return take_in(object, "") || take_in(object, "/vibrant");
}

static void find(void) {
    if (vb_linked_library) {
        const vb_library *const linked = vb_linked_library();
        char reason[160];
        compare_with_driver(linked, reason, sizeof reason);
        if (!reason[0]) found = linked;
        snprintf(report, sizeof report, "linked into this program%s%s", reason[0] ? ": " : "", reason);
        return;
    }
    const char *named = getenv("VIBRANT_LIBRARY");
    if (named && named[0]) {
        if (is_same_file(named, this_object())) { /* which programs without cgo name for its C kernels */
            refuse(named, "holds no CUDA kernels");
            return;
        }
        char here[PATH_MAX]; /* a name without a folder is a file too, and not what the loader finds */
        snprintf(here, sizeof here, "%s%s", strchr(named, '/') ? "" : "./", named);
        if (access(here, F_OK) == 0) take(here);
        else refuse(named, "no such file (VIBRANT_LIBRARY names it): correct the path or unset it");
        refused = !found;
        return;
    }
    if (take_near()) return;
    if (take(NAME)) return;
    if (!report[0])
        snprintf(
            report, sizeof report,
            "no " NAME " beside the program, in lib, ../lib/vibrant or ../lib from there, beside libvibrant.so, or "
            "where the loader looks (VIBRANT_LIBRARY names one)");
}

const vb_library *vb_cuda_library_in_use(void) {
    pthread_once(&once, find);
    return found;
}

int vb_cuda_library_refused(void) {
    pthread_once(&once, find);
    return refused;
}

static pthread_once_t described = PTHREAD_ONCE_INIT;
static char description[sizeof report + 256];

static void describe(void) {
    const bool asked = vb_cuda_asked("ptx");
    const bool ptx = asked || (!found && !refused && !vb_cuda_asked("library") && vb_driver_in_use());
    snprintf(description, sizeof description, "%s%s%s", ptx ? "compiled by the driver from PTX (" : "",
             ptx ? vb_driver_report() : report,
             asked ? "), as VIBRANT_CUDA asks" : ptx ? "), slower than " NAME ": " : "");
    if (ptx && !asked) strncat(description, report, sizeof description - strlen(description) - 1);
}

const char *vb_cuda_library(void) {
    pthread_once(&once, find);
    pthread_once(&described, describe);
    return description;
}

#else

const vb_library *vb_cuda_library_in_use(void) { return NULL; }
int vb_cuda_library_refused(void) { return 0; }
const char *vb_cuda_library(void) { return "this system has no CUDA kernels"; }

#endif
