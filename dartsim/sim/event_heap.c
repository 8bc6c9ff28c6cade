/* The heap of a simulated world and the ready queue of its loop, in C: what event_heap.py is in Python, which documents
 * every name and is the reference of tests/sim/test_event_heap.py. Built beside it, it is what Python imports.
 *
 * What makes it faster than the same source compiled: times are not objects, the entries of the heap lie side by side
 * (a turn of a large cluster otherwise waits for memory), and a callback is run without a Python frame in between.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <math.h>

#define NORMAL 1
#define COMPACT_ABOVE 64
#define NUMBER_BITS 56 /* of an entry's rank; the priority is in the bits above */

static PyObject *wake_sleeper, *future_type, *no_arguments; /* loaded once */
static PyObject *s_context, *s_limits, *s_alarm, *s_max_events, *s_ring, *s_waiting, *s_stalled, *s_too_many_events,
    *s_callback_failed, *s_cancelled, *s_set_result;

/* Handles and timers. */

typedef struct {
    PyObject_HEAD
    PyObject *call;    /* (callback, *args); None once cancelled or run */
    PyObject *context; /* NULL in a world's timer */
} Soon;

typedef struct Heap Heap;

typedef struct {
    Soon soon;
    Heap *env;
    double when;
} Timer;

typedef struct {
    double when;
    long long rank; /* (priority, number) */
    Timer *timer;
} Entry;

struct Heap {
    PyObject_HEAD
    double now;
    Entry *entries;
    Py_ssize_t size, room;
    long long number, num_dead;
};

static PyTypeObject SoonType, TimerType, HeapType, QueueType;

#define IS_DEAD(timer) ((timer)->soon.call == Py_None)

static int soon_traverse(Soon *self, visitproc visit, void *arg) {
    Py_VISIT(self->call);
    Py_VISIT(self->context);
    return 0;
}

static int soon_clear(Soon *self) {
    Py_CLEAR(self->call);
    Py_CLEAR(self->context);
    return 0;
}

static void soon_dealloc(Soon *self) {
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->call);
    Py_XDECREF(self->context);
    Py_TYPE(self)->tp_free(self);
}

static int timer_traverse(Timer *self, visitproc visit, void *arg) {
    Py_VISIT(self->env);
    return soon_traverse(&self->soon, visit, arg);
}

static int timer_clear(Timer *self) {
    Py_CLEAR(self->env);
    return soon_clear(&self->soon);
}

static void timer_dealloc(Timer *self) {
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->soon.call);
    Py_XDECREF(self->soon.context);
    Py_XDECREF(self->env);
    Py_TYPE(self)->tp_free(self);
}

/* Steals the references to call and context. */
static PyObject *new_soon(PyObject *call, PyObject *context) {
    Soon *self = PyObject_GC_New(Soon, &SoonType);
    if (self == NULL) {
        Py_DECREF(call);
        Py_DECREF(context);
        return NULL;
    }
    self->call = call;
    self->context = context;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static PyObject *soon_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *call, *context;
    if (!PyArg_ParseTuple(args, "OO:SoonHandle", &call, &context))
        return NULL;
    return new_soon(Py_NewRef(call), Py_NewRef(context));
}

static PyObject *soon_cancel(Soon *self, PyObject *ignored) {
    Py_SETREF(self->call, Py_NewRef(Py_None));
    Py_RETURN_NONE;
}

static PyObject *soon_cancelled(Soon *self, PyObject *ignored) { return PyBool_FromLong(self->call == Py_None); }

static PyObject *soon_get_context(Soon *self, PyObject *ignored) { return Py_NewRef(self->context); }

static PyObject *soon_repr(Soon *self) {
    if (self->call == Py_None)
        return PyUnicode_FromString("<SoonHandle cancelled>");
    return PyUnicode_FromFormat("<SoonHandle %R>", self->call);
}

static int compact(Heap *env);

static PyObject *timer_cancel(Timer *self, PyObject *ignored) {
    if (self->soon.call != Py_None) {
        Py_SETREF(self->soon.call, Py_NewRef(Py_None));
        Heap *env = self->env;
        if (self->when > env->now) {
            env->num_dead++;
            if (env->num_dead > COMPACT_ABOVE && env->num_dead * 2 > env->size)
                compact(env);
        }
    }
    Py_RETURN_NONE;
}

static PyObject *timer_when(Timer *self, PyObject *ignored) { return PyFloat_FromDouble(self->when); }

static PyObject *timer_repr(Timer *self) {
    PyObject *when = PyFloat_FromDouble(self->when), *text = NULL;
    if (when != NULL && self->soon.call == Py_None)
        text = PyUnicode_FromFormat("<Timer at %R cancelled>", when);
    else if (when != NULL)
        text = PyUnicode_FromFormat("<Timer at %R %R>", when, self->soon.call);
    Py_XDECREF(when);
    return text;
}

static PyMethodDef soon_methods[] = {
    {"cancel", (PyCFunction)soon_cancel, METH_NOARGS, NULL},
    {"cancelled", (PyCFunction)soon_cancelled, METH_NOARGS, NULL},
    {"get_context", (PyCFunction)soon_get_context, METH_NOARGS, NULL},
    {NULL},
};
static PyMethodDef timer_methods[] = {
    {"cancel", (PyCFunction)timer_cancel, METH_NOARGS, NULL},
    {"cancelled", (PyCFunction)soon_cancelled, METH_NOARGS, NULL},
    {"when", (PyCFunction)timer_when, METH_NOARGS, NULL},
    {NULL},
};
static PyMemberDef soon_members[] = {
    {"_call", T_OBJECT, offsetof(Soon, call)}, /* a world's timer is marked as run by Python, too */
    {"_context", T_OBJECT, offsetof(Soon, context), READONLY},
    {NULL},
};

static PyTypeObject SoonType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dartsim.sim.event_heap.SoonHandle",
    .tp_basicsize = sizeof(Soon),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .tp_new = soon_new,
    .tp_dealloc = (destructor)soon_dealloc,
    .tp_traverse = (traverseproc)soon_traverse,
    .tp_clear = (inquiry)soon_clear,
    .tp_repr = (reprfunc)soon_repr,
    .tp_methods = soon_methods,
    .tp_members = soon_members,
};
static PyTypeObject TimerType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dartsim.sim.event_heap.Timer",
    .tp_basicsize = sizeof(Timer),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_base = &SoonType,
    .tp_dealloc = (destructor)timer_dealloc,
    .tp_traverse = (traverseproc)timer_traverse,
    .tp_clear = (inquiry)timer_clear,
    .tp_repr = (reprfunc)timer_repr,
    .tp_methods = timer_methods,
};

/* The heap. */

static inline int before(const Entry *a, const Entry *b) {
    return a->when < b->when || (a->when == b->when && a->rank < b->rank);
}

static void sift_up(Entry *entries, Py_ssize_t place, Entry entry) {
    while (place > 0) {
        Py_ssize_t parent = (place - 1) / 2;
        if (!before(&entry, &entries[parent]))
            break;
        entries[place] = entries[parent];
        place = parent;
    }
    entries[place] = entry;
}

static void sift_down(Entry *entries, Py_ssize_t size, Py_ssize_t place, Entry entry) {
    for (Py_ssize_t child; (child = 2 * place + 1) < size; place = child) {
        if (child + 1 < size && before(&entries[child + 1], &entries[child]))
            child++;
        if (!before(&entries[child], &entry))
            break;
        entries[place] = entries[child];
    }
    entries[place] = entry;
}

/* Steals the reference to timer. */
static int push(Heap *self, double when, long long priority, Timer *timer) {
    if (self->size == self->room) {
        Py_ssize_t room = self->room ? 2 * self->room : 64;
        Entry *entries = PyMem_Realloc(self->entries, (size_t)room * sizeof(Entry));
        if (entries == NULL) {
            Py_DECREF(timer);
            PyErr_NoMemory();
            return -1;
        }
        self->entries = entries;
        self->room = room;
    }
    Entry entry = {when, priority * (1LL << NUMBER_BITS) + self->number++, timer};
    sift_up(self->entries, self->size++, entry);
    return 0;
}

/* Returns the reference that the heap had. */
static Timer *pop(Heap *self) {
    Timer *timer = self->entries[0].timer;
    Entry last = self->entries[--self->size];
    if (self->size)
        sift_down(self->entries, self->size, 0, last);
    return timer;
}

static int compact(Heap *self) {
    Py_ssize_t size = self->size, kept = 0;
    Entry *old = self->entries, *entries = PyMem_New(Entry, self->room);
    PyObject *dead = PyList_New(0); /* freed at the end: what is freed may schedule */
    if (entries == NULL || dead == NULL)
        goto failed;
    for (Py_ssize_t i = 0; i < size; i++)
        if (!IS_DEAD(old[i].timer))
            entries[kept++] = old[i];
        else if (PyList_Append(dead, (PyObject *)old[i].timer) < 0)
            goto failed;
        else
            Py_DECREF(old[i].timer); /* the list has another reference */
    for (Py_ssize_t place = kept / 2 - 1; place >= 0; place--)
        sift_down(entries, kept, place, entries[place]);
    self->entries = entries;
    self->size = kept;
    self->num_dead = 0;
    PyMem_Free(old);
    Py_DECREF(dead);
    return 0;
failed:
    PyErr_Clear(); /* the dead stay for now */
    PyMem_Free(entries);
    Py_XDECREF(dead);
    return -1;
}

static Timer *head(Heap *self) {
    while (self->size) {
        Timer *timer = self->entries[0].timer;
        if (!IS_DEAD(timer))
            return timer;
        Py_DECREF(pop(self));
        self->num_dead--;
    }
    return NULL;
}

static int heap_init(Heap *self, PyObject *args, PyObject *kwargs) {
    self->now = 0.0;
    return PyArg_ParseTuple(args, "|d:EventHeap", &self->now) ? 0 : -1;
}

static int heap_traverse(Heap *self, visitproc visit, void *arg) {
    for (Py_ssize_t i = 0; i < self->size; i++)
        Py_VISIT(self->entries[i].timer);
    return 0;
}

static int heap_clear(Heap *self) {
    Entry *entries = self->entries;
    Py_ssize_t size = self->size;
    self->entries = NULL;
    self->size = self->room = 0;
    for (Py_ssize_t i = 0; i < size; i++)
        Py_DECREF(entries[i].timer);
    PyMem_Free(entries);
    return 0;
}

static void heap_dealloc(Heap *self) {
    PyObject_GC_UnTrack(self);
    heap_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *call_tuple(PyObject *const *args, Py_ssize_t nargs) {
    PyObject *call = PyTuple_New(nargs);
    for (Py_ssize_t i = 0; call != NULL && i < nargs; i++)
        PyTuple_SET_ITEM(call, i, Py_NewRef(args[i]));
    return call;
}

/* Puts a call on the heap; steals the reference to context. */
static PyObject *call_when(Heap *env, double when, long long priority, PyObject *context, PyObject *const *args,
                           Py_ssize_t nargs) {
    PyObject *call = call_tuple(args, nargs);
    Timer *timer = call == NULL ? NULL : PyObject_GC_New(Timer, &TimerType);
    if (timer == NULL) {
        Py_XDECREF(call);
        Py_XDECREF(context);
        return NULL;
    }
    timer->soon.call = call;
    timer->soon.context = context;
    timer->env = (Heap *)Py_NewRef(env);
    timer->when = when;
    PyObject_GC_Track(timer);
    if (push(env, when, priority, (Timer *)Py_NewRef(timer)) < 0)
        Py_CLEAR(timer);
    return (PyObject *)timer;
}

static int wants_call(const char *name, Py_ssize_t nargs) {
    if (nargs >= 2)
        return 1;
    PyErr_Format(PyExc_TypeError, "%s() wants a time and a callback", name);
    return 0;
}

static PyObject *heap_call_at(Heap *self, PyObject *const *args, Py_ssize_t nargs) {
    if (!wants_call("call_at", nargs))
        return NULL;
    double when = PyFloat_AsDouble(args[0]) + 0.0;
    if (PyErr_Occurred())
        return NULL;
    if (!(when >= self->now)) {
        PyObject *now = PyFloat_FromDouble(self->now), *due = PyFloat_FromDouble(when);
        PyErr_Format(PyExc_ValueError, "call_at(%R) lies in the past: now is %R", due, now);
        Py_XDECREF(now);
        Py_XDECREF(due);
        return NULL;
    }
    return call_when(self, when, NORMAL, NULL, args + 1, nargs - 1);
}

static PyObject *heap_call_in(Heap *self, PyObject *const *args, Py_ssize_t nargs) {
    if (!wants_call("call_in", nargs))
        return NULL;
    double delay = PyFloat_AsDouble(args[0]);
    if (PyErr_Occurred())
        return NULL;
    if (!(delay >= 0.0))
        return PyErr_Format(PyExc_ValueError, "call_in wants a delay of at least 0 seconds, got %R", args[0]);
    return call_when(self, self->now + delay, NORMAL, NULL, args + 1, nargs - 1);
}

static PyObject *heap_call_with_priority(Heap *self, PyObject *const *args, Py_ssize_t nargs) {
    if (nargs < 3)
        return PyErr_Format(PyExc_TypeError, "call_with_priority() wants a time, a priority and a callback");
    double when = PyFloat_AsDouble(args[0]);
    long priority = PyErr_Occurred() ? 0 : PyLong_AsLong(args[1]);
    if (PyErr_Occurred())
        return NULL;
    if (priority < -64 || priority > 63)
        return PyErr_Format(PyExc_ValueError, "a priority must lie between -64 and 63, got %ld", priority);
    return call_when(self, when, priority, NULL, args + 2, nargs - 2);
}

static PyObject *heap_delay(Heap *self, PyObject *seconds) { return Py_NewRef(seconds); }

static PyObject *heap_peek(Heap *self, PyObject *ignored) {
    return PyFloat_FromDouble(head(self) == NULL ? Py_HUGE_VAL : self->entries[0].when);
}

static PyObject *heap_head(Heap *self, PyObject *ignored) {
    Timer *timer = head(self);
    return Py_NewRef(timer == NULL ? Py_None : (PyObject *)timer);
}

static PyObject *heap_pop(Heap *self, PyObject *ignored) {
    if (!self->size)
        return PyErr_Format(PyExc_IndexError, "the heap is empty");
    return (PyObject *)pop(self);
}

static PyObject *heap_timers(Heap *self, PyObject *ignored) {
    PyObject *timers = PyList_New(self->size);
    for (Py_ssize_t i = 0; timers != NULL && i < self->size; i++)
        PyList_SET_ITEM(timers, i, Py_NewRef(self->entries[i].timer));
    return timers;
}

static PyObject *heap_clear_all(Heap *self, PyObject *ignored) {
    heap_clear(self);
    Py_RETURN_NONE;
}

static PyObject *heap_now(Heap *self, void *ignored) { return PyFloat_FromDouble(self->now); }

static PyObject *heap_num_entries(Heap *self, void *ignored) { return PyLong_FromSsize_t(self->size); }

static PyMethodDef heap_methods[] = {
    {"call_at", (PyCFunction)(void (*)(void))heap_call_at, METH_FASTCALL, NULL},
    {"call_in", (PyCFunction)(void (*)(void))heap_call_in, METH_FASTCALL, NULL},
    {"call_with_priority", (PyCFunction)(void (*)(void))heap_call_with_priority, METH_FASTCALL, NULL},
    {"delay", (PyCFunction)heap_delay, METH_O, NULL},
    {"peek", (PyCFunction)heap_peek, METH_NOARGS, NULL},
    {"head", (PyCFunction)heap_head, METH_NOARGS, NULL},
    {"pop", (PyCFunction)heap_pop, METH_NOARGS, NULL},
    {"timers", (PyCFunction)heap_timers, METH_NOARGS, NULL},
    {"clear", (PyCFunction)heap_clear_all, METH_NOARGS, NULL},
    {NULL},
};
static PyMemberDef heap_members[] = {{"_now", T_DOUBLE, offsetof(Heap, now)}, {NULL}};
static PyGetSetDef heap_getset[] = {
    {"now", (getter)heap_now},
    {"num_entries", (getter)heap_num_entries},
    {NULL},
};
static PyTypeObject HeapType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dartsim.sim.event_heap.EventHeap",
    .tp_basicsize = sizeof(Heap),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)heap_init,
    .tp_dealloc = (destructor)heap_dealloc,
    .tp_traverse = (traverseproc)heap_traverse,
    .tp_clear = (inquiry)heap_clear,
    .tp_methods = heap_methods,
    .tp_members = heap_members,
    .tp_getset = heap_getset,
};

/* The ready queue. */

typedef struct {
    PyObject_HEAD
    PyObject *env, *ready, *append, *popleft, *context; /* a deque and its methods */
    PyObject *future_options; /* {"loop": self} while it runs: making it costs as much as making the future */
    long long num_events, digest;
    char stopping, debug;
} Queue;

#define HEAP(queue) ((Heap *)(queue)->env)

static int queue_init(Queue *self, PyObject *args, PyObject *kwargs) {
    PyObject *env, *collections = NULL;
    if (!PyArg_ParseTuple(args, "O!:ReadyQueue", &HeapType, &env))
        return -1;
    Py_XSETREF(self->env, Py_NewRef(env));
    Py_XSETREF(self->context, PyContext_CopyCurrent());
    if ((collections = PyImport_ImportModule("collections")) != NULL) {
        Py_XSETREF(self->ready, PyObject_CallMethod(collections, "deque", NULL));
        Py_DECREF(collections);
    }
    if (self->ready == NULL || self->context == NULL)
        return -1;
    Py_XSETREF(self->append, PyObject_GetAttrString(self->ready, "append"));
    Py_XSETREF(self->popleft, PyObject_GetAttrString(self->ready, "popleft"));
    return self->append == NULL || self->popleft == NULL ? -1 : 0;
}

static int queue_traverse(Queue *self, visitproc visit, void *arg) {
    Py_VISIT(self->env);
    Py_VISIT(self->ready);
    Py_VISIT(self->append);
    Py_VISIT(self->popleft);
    Py_VISIT(self->context);
    Py_VISIT(self->future_options);
    return 0;
}

static int queue_clear(Queue *self) {
    Py_CLEAR(self->env);
    Py_CLEAR(self->ready);
    Py_CLEAR(self->append);
    Py_CLEAR(self->popleft);
    Py_CLEAR(self->context);
    Py_CLEAR(self->future_options);
    return 0;
}

static void queue_dealloc(Queue *self) {
    PyObject_GC_UnTrack(self);
    queue_clear(self);
    Py_TYPE(self)->tp_free(self);
}

/* Returns a new reference to the context that a call names, or else to fallback, or else to a copy of the current one;
 * NULL with an exception set if there is another keyword. */
static PyObject *context_of(PyObject *const *keywords, PyObject *names, PyObject *fallback) {
    PyObject *context = Py_None;
    for (Py_ssize_t i = 0; names != NULL && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        if (name != s_context && PyUnicode_Compare(name, s_context) != 0)
            return PyErr_Format(PyExc_TypeError, "unexpected keyword argument %R", name);
        context = keywords[i];
    }
    if (context != Py_None)
        return Py_NewRef(context);
    return fallback == NULL ? PyContext_CopyCurrent() : Py_NewRef(fallback);
}

static PyObject *queue_call_soon(Queue *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names) {
    if (nargs < 1)
        return PyErr_Format(PyExc_TypeError, "call_soon() wants a callback");
    PyObject *context = context_of(args + nargs, names, NULL);
    PyObject *call = context == NULL ? NULL : call_tuple(args, nargs);
    if (call == NULL) {
        Py_XDECREF(context);
        return NULL;
    }
    PyObject *handle = new_soon(call, context);
    PyObject *done = handle == NULL ? NULL : PyObject_CallOneArg(self->append, handle);
    if (done == NULL)
        Py_CLEAR(handle);
    Py_XDECREF(done);
    return handle;
}

static PyObject *later(Queue *self, double when, PyObject *fallback, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *names) {
    PyObject *context = context_of(args + nargs, names, fallback);
    return context == NULL ? NULL : call_when(HEAP(self), when, NORMAL, context, args + 1, nargs - 1);
}

static PyObject *queue_call_later(Queue *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names) {
    if (!wants_call("call_later", nargs))
        return NULL;
    double delay = PyFloat_AsDouble(args[0]);
    if (PyErr_Occurred())
        return NULL;
    return later(self, HEAP(self)->now + delay, args[1] == wake_sleeper ? self->context : NULL, args, nargs, names);
}

static PyObject *queue_call_at(Queue *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names) {
    if (!wants_call("call_at", nargs))
        return NULL;
    double when = PyFloat_AsDouble(args[0]) + 0.0;
    if (PyErr_Occurred())
        return NULL;
    return later(self, when, NULL, args, nargs, names);
}

static PyObject *queue_create_future(Queue *self, PyObject *ignored) {
    if (self->future_options == NULL && (self->future_options = Py_BuildValue("{sO}", "loop", self)) == NULL)
        return NULL;
    return PyObject_Call(future_type, no_arguments, self->future_options);
}

static PyObject *queue_get_debug(Queue *self, PyObject *ignored) { return PyBool_FromLong(self->debug); }

static PyObject *queue_set_debug(Queue *self, PyObject *enabled) {
    int debug = PyObject_IsTrue(enabled);
    if (debug < 0)
        return NULL;
    self->debug = (char)debug;
    Py_RETURN_NONE;
}

static PyObject *queue_time(Queue *self, PyObject *ignored) { return PyFloat_FromDouble(HEAP(self)->now); }

static int run_call(PyObject *call) {
    PyObject *const *args = &PyTuple_GET_ITEM(call, 0);
    PyObject *result = PyObject_Vectorcall(args[0], args + 1, (size_t)(PyTuple_GET_SIZE(call) - 1), NULL);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* Makes the call of a world's timer. */
static int happen(Timer *timer) {
    PyObject *call = timer->soon.call;
    if (call == Py_None)
        return 0;
    timer->soon.call = Py_NewRef(Py_None);
    int failed = run_call(call);
    Py_DECREF(call);
    return failed;
}

/* What asyncio's function for sleepers does; a future that was cancelled meanwhile is asked only if it takes no result. */
static int wake(PyObject *future, PyObject *value) {
    PyObject *result = PyObject_CallMethodOneArg(future, s_set_result, value);
    if (result != NULL) {
        Py_DECREF(result);
        return 0;
    }
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyObject *cancelled = PyObject_CallMethodNoArgs(future, s_cancelled);
    int was_cancelled = cancelled == NULL ? -1 : PyObject_IsTrue(cancelled);
    Py_XDECREF(cancelled);
    if (was_cancelled == 0) {
        PyErr_Restore(type, error, traceback);
        return -1;
    }
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    return was_cancelled < 0 ? -1 : 0;
}

/* Runs a handle of the ready queue. An exception goes to the loop, unless it has to end the loop. */
static int run_handle(PyObject *self, PyObject *item) {
    PyObject *call, *context;
    if (Py_TYPE(item) != &SoonType && Py_TYPE(item) != &TimerType) {
        PyErr_Format(PyExc_TypeError, "not a handle: %R", item);
        return -1;
    }
    if ((call = ((Soon *)item)->call) == Py_None)
        return 0;
    Py_INCREF(call); /* the callback may cancel its handle */
    context = ((Soon *)item)->context;
    int failed = PyContext_Enter(context);
    if (!failed) {
        if (PyTuple_GET_ITEM(call, 0) == wake_sleeper && PyTuple_GET_SIZE(call) == 3)
            failed = wake(PyTuple_GET_ITEM(call, 1), PyTuple_GET_ITEM(call, 2));
        else
            failed = run_call(call);
        if (PyContext_Exit(context) < 0)
            failed = -1;
    }
    Py_DECREF(call);
    if (!failed || PyErr_ExceptionMatches(PyExc_SystemExit) || PyErr_ExceptionMatches(PyExc_KeyboardInterrupt))
        return failed;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL)
        PyException_SetTraceback(value, traceback);
    PyObject *result = PyObject_CallMethodObjArgs(self, s_callback_failed, value, item, NULL);
    Py_DECREF(type);
    Py_DECREF(value);
    Py_XDECREF(traceback);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static int read_float(PyObject *owner, PyObject *name, double *number) {
    PyObject *value = PyObject_GetAttr(owner, name);
    if (value == NULL)
        return -1;
    *number = PyFloat_AsDouble(value);
    Py_DECREF(value);
    return PyErr_Occurred() ? -1 : 0;
}

/* The hash of the tuple (digest, now, num_events), as Python has it (xxHash), without making the tuple. */
#if SIZEOF_VOID_P != 8
#error "the hash of a tuple is another where pointers have 32 bits"
#endif
#define HASH_1 11400714785074694791ULL
#define HASH_2 14029467366897019727ULL
#define HASH_5 2870177450012600261ULL
#define HASH_MODULUS 2305843009213693951LL /* 2**61 - 1 */

static Py_uhash_t integer_hash(long long number) {
    long long hash = number % HASH_MODULUS; /* has the sign of the number */
    return (Py_uhash_t)(hash == -1 ? -2 : hash);
}

static int next_digest(long long *digest, double now, long long num_events) {
    PyObject *time = PyFloat_FromDouble(now);
    if (time == NULL)
        return -1;
    Py_uhash_t lanes[] = {integer_hash(*digest), (Py_uhash_t)PyObject_Hash(time), integer_hash(num_events)}, hash = HASH_5;
    Py_DECREF(time);
    for (int i = 0; i < 3; i++) {
        hash += lanes[i] * HASH_2;
        hash = ((hash << 31) | (hash >> 33)) * HASH_1;
    }
    hash += 3 ^ (HASH_5 ^ 3527539ULL);
    *digest = hash == (Py_uhash_t)-1 ? 1546275796 : (long long)hash;
    return 0;
}

static int raise_from(PyObject *self, PyObject *method) {
    PyObject *error = PyObject_CallMethodNoArgs(self, method);
    if (error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return -1;
}

static int ring(PyObject *self, Heap *env, PyObject *limits, double when, double *alarm) {
    PyObject *waiting = PyObject_GetAttr(self, s_waiting), *due = PyFloat_FromDouble(when), *next = NULL;
    if (waiting != NULL && due != NULL)
        next = PyObject_CallMethodObjArgs(limits, s_ring, (PyObject *)env, due, waiting, NULL);
    Py_XDECREF(waiting);
    Py_XDECREF(due);
    if (next == NULL)
        return -1;
    *alarm = PyFloat_AsDouble(next);
    Py_DECREF(next);
    return PyErr_Occurred() ? -1 : 0;
}

static int spin(Queue *queue, PyObject *limits, long long *num_events, long long *digest) {
    PyObject *self = (PyObject *)queue, *item;
    Timer *timer;
    Heap *env = HEAP(queue);
    double alarm, max_events;
    int failed;
    if (read_float(limits, s_alarm, &alarm) < 0 || read_float(limits, s_max_events, &max_events) < 0)
        return -1;
    for (;;) {
        while (env->size) {
            double when = env->entries[0].when;
            timer = env->entries[0].timer;
            if (when > env->now) {
                if (queue->stopping || PyObject_Size(queue->ready))
                    break;
                if (IS_DEAD(timer)) {
                    Py_DECREF(pop(env));
                    env->num_dead--;
                    continue;
                }
                if (when > alarm) {
                    queue->num_events = *num_events;
                    queue->digest = *digest;
                    if (ring(self, env, limits, when, &alarm) < 0)
                        return -1;
                    continue;
                }
                if (next_digest(digest, env->now, *num_events) < 0)
                    return -1;
                env->now = when;
            }
            timer = pop(env);
            if (timer->soon.context != NULL) {
                PyObject *done = PyObject_CallOneArg(queue->append, (PyObject *)timer);
                Py_DECREF(timer);
                if (done == NULL)
                    return -1;
                Py_DECREF(done);
                continue;
            }
            ++*num_events;
            failed = happen(timer);
            Py_DECREF(timer);
            if (failed)
                return -1;
            if (*num_events > max_events)
                return raise_from(self, s_too_many_events);
        }
        Py_ssize_t num_ready = PyObject_Size(queue->ready);
        if (!num_ready && !queue->stopping)
            return raise_from(self, s_stalled);
        *num_events += num_ready;
        while (num_ready--) {
            if ((item = PyObject_CallNoArgs(queue->popleft)) == NULL)
                return -1;
            failed = run_handle(self, item);
            Py_DECREF(item);
            if (failed)
                return -1;
        }
        if (queue->stopping)
            return 0;
        if (*num_events > max_events)
            return raise_from(self, s_too_many_events);
        if (PyErr_CheckSignals() < 0)
            return -1;
    }
}

static PyObject *queue_spin(Queue *self, PyObject *ignored) {
    PyObject *limits = PyObject_GetAttr((PyObject *)self, s_limits);
    if (limits == NULL)
        return NULL;
    long long num_events = self->num_events, digest = self->digest;
    int failed = spin(self, limits, &num_events, &digest);
    self->num_events = num_events;
    self->digest = digest;
    Py_DECREF(limits);
    Py_CLEAR(self->future_options); /* it refers to the queue */
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef queue_methods[] = {
    {"call_soon", (PyCFunction)(void (*)(void))queue_call_soon, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"call_later", (PyCFunction)(void (*)(void))queue_call_later, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"call_at", (PyCFunction)(void (*)(void))queue_call_at, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"create_future", (PyCFunction)queue_create_future, METH_NOARGS, NULL},
    {"get_debug", (PyCFunction)queue_get_debug, METH_NOARGS, NULL},
    {"set_debug", (PyCFunction)queue_set_debug, METH_O, NULL},
    {"time", (PyCFunction)queue_time, METH_NOARGS, NULL},
    {"_spin", (PyCFunction)queue_spin, METH_NOARGS, NULL},
    {NULL},
};
static PyMemberDef queue_members[] = {
    {"env", T_OBJECT, offsetof(Queue, env), READONLY},
    {"_ready", T_OBJECT, offsetof(Queue, ready), READONLY},
    {"_context", T_OBJECT, offsetof(Queue, context), READONLY},
    {"_num_events", T_LONGLONG, offsetof(Queue, num_events)},
    {"_digest", T_LONGLONG, offsetof(Queue, digest)},
    {"_stopping", T_BOOL, offsetof(Queue, stopping)},
    {"_debug", T_BOOL, offsetof(Queue, debug)},
    {NULL},
};
static PyTypeObject QueueType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dartsim.sim.event_heap.ReadyQueue",
    .tp_basicsize = sizeof(Queue),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)queue_init,
    .tp_dealloc = (destructor)queue_dealloc,
    .tp_traverse = (traverseproc)queue_traverse,
    .tp_clear = (inquiry)queue_clear,
    .tp_methods = queue_methods,
    .tp_members = queue_members,
};

static PyObject *attribute(const char *module, const char *name) {
    PyObject *owner = PyImport_ImportModule(module);
    PyObject *value = owner == NULL ? NULL : PyObject_GetAttrString(owner, name);
    Py_XDECREF(owner);
    return value;
}

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "event_heap", .m_size = -1};

PyMODINIT_FUNC PyInit_event_heap(void) {
    static const struct { PyObject **place; const char *text; } names[] = {
        {&s_context, "context"}, {&s_limits, "_limits"}, {&s_alarm, "alarm"}, {&s_max_events, "max_events"},
        {&s_ring, "ring"}, {&s_waiting, "_waiting"}, {&s_stalled, "_stalled"},
        {&s_too_many_events, "_too_many_events"}, {&s_callback_failed, "_callback_failed"},
        {&s_cancelled, "cancelled"}, {&s_set_result, "set_result"},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if ((*names[i].place = PyUnicode_InternFromString(names[i].text)) == NULL)
            return NULL;
    wake_sleeper = attribute("dartsim.sim.loop_services", "WAKE_SLEEPER");
    future_type = attribute("asyncio", "Future");
    no_arguments = PyTuple_New(0);
    PyObject *module = PyModule_Create(&definition);
    if (wake_sleeper == NULL || future_type == NULL || no_arguments == NULL || module == NULL)
        return NULL;
    if (PyModule_AddIntMacro(module, COMPACT_ABOVE) < 0 || PyModule_AddType(module, &SoonType) < 0 ||
        PyModule_AddType(module, &TimerType) < 0 || PyModule_AddType(module, &HeapType) < 0 ||
        PyModule_AddType(module, &QueueType) < 0)
        return NULL;
    return module;
}
