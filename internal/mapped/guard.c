//go:build linux || darwin

/* guard.c: keeps a mapped file that somebody cuts short from ending the process.
 *
 * The handler of SIGBUS looks for the address among the mappings in its care. From the page that is gone to the end of
 * that mapping it puts pages of zeros, and the access is repeated. Any other SIGBUS goes to the handler that was there
 * before: Go's, which wants handlers to run on the alternate stack. mmap is no more than a system call, which a handler
 * may make. */
#include "guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SLOTS = 4096 };

static struct {
    atomic_uintptr_t start, end; /* end 0: free */
    atomic_int struck;
} slots[SLOTS];
static pthread_mutex_t filling = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t installed = PTHREAD_ONCE_INIT;
static struct sigaction before;
static uintptr_t page_size;

static int fill_with_zeros(uintptr_t address) {
    for (int i = 0; i < SLOTS; i++) {
        const uintptr_t end = atomic_load(&slots[i].end);
        if (address >= end || address < atomic_load(&slots[i].start)) continue;
        const uintptr_t page = address & ~(page_size - 1);
        if (mmap((void *)page, end - page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON | MAP_FIXED, -1, 0) ==
            MAP_FAILED)
            return 0;
        atomic_store(&slots[i].struck, 1);
        return 1;
    }
    return 0;
}

static void on_bus_error(int number, siginfo_t *info, void *context) {
    const int error = errno;
    if (fill_with_zeros((uintptr_t)info->si_addr)) {
        errno = error;
    } else if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else {
        signal(number, SIG_DFL); /* the access is repeated, and ends the process as it would have */
    }
}

static void install(void) {
    page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigaction(SIGBUS, NULL, &before);
    struct sigaction action = before;
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigaction(SIGBUS, &action, NULL);
}

int vb_guard(const void *start, size_t bytes) {
    pthread_once(&installed, install);
    int slot = -1;
    pthread_mutex_lock(&filling);
    for (int i = 0; i < SLOTS && slot < 0; i++)
        if (atomic_load(&slots[i].end) == 0) slot = i;
    if (slot >= 0) {
        atomic_store(&slots[slot].struck, 0);
        atomic_store(&slots[slot].start, (uintptr_t)start);
        atomic_store(&slots[slot].end, (uintptr_t)start + bytes);
    }
    pthread_mutex_unlock(&filling);
    return slot;
}

int vb_guard_struck(int slot) { return atomic_load(&slots[slot].struck); }

void vb_guard_release(int slot) { atomic_store(&slots[slot].end, 0); }
