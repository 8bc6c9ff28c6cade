/* Python's memory in huge pages: what huge_pages.py documents. Built beside it, it is what Python imports. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <sys/mman.h>

#ifdef MADV_HUGEPAGE

#define HUGE_BYTES ((size_t)2 << 20)
#define RESERVED_BYTES ((size_t)64 << 30) /* of addresses; memory is taken page by page, as it is written */
#define CHUNK_BYTES ((size_t)32 << 20)    /* made writable at once */
#define MAX_SPARE 4096

static PyObjectArenaAllocator standard;
static char *first, *next, *writable, *end; /* of the reserved addresses */
static size_t arena_bytes;
static void *spare[MAX_SPARE]; /* arenas that were freed */
static int num_spare;

static void *take(void *context, size_t size) {
    if (arena_bytes == 0)
        arena_bytes = size;
    if (size != arena_bytes)
        return standard.alloc(standard.ctx, size);
    if (num_spare)
        return spare[--num_spare];
    if (next + size > writable) {
        if (writable + CHUNK_BYTES > end || mprotect(writable, CHUNK_BYTES, PROT_READ | PROT_WRITE) != 0)
            return standard.alloc(standard.ctx, size);
        writable += CHUNK_BYTES;
    }
    void *arena = next;
    next += size;
    return arena;
}

static void give_back(void *context, void *arena, size_t size) {
    if ((char *)arena < first || (char *)arena >= end) {
        standard.free(standard.ctx, arena, size); /* made before, or by the standard allocator */
        return;
    }
    madvise(arena, size, MADV_DONTNEED);
    if (num_spare < MAX_SPARE)
        spare[num_spare++] = arena;
}

static int enable(void) {
    char *reserved = mmap(NULL, RESERVED_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return 0;
    first = next = writable = (char *)(((size_t)reserved + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1));
    end = reserved + RESERVED_BYTES;
    if (madvise(first, (size_t)(end - first), MADV_HUGEPAGE) != 0) {
        munmap(reserved, RESERVED_BYTES);
        first = NULL;
        return 0;
    }
    PyObject_GetArenaAllocator(&standard);
    PyObjectArenaAllocator ours = {NULL, take, give_back};
    PyObject_SetArenaAllocator(&ours);
    return 1;
}

#else

static char *first;
static int enable(void) { return 0; }

#endif

static PyObject *use_huge_pages(PyObject *module, PyObject *ignored) {
    return PyBool_FromLong(first != NULL || enable());
}

static PyMethodDef methods[] = {{"use_huge_pages", use_huge_pages, METH_NOARGS, NULL}, {NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "huge_pages", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit_huge_pages(void) { return PyModule_Create(&definition); }
