// A program that tries an installed library.

#include <stdio.h>
#include <string.h>
#include <tourbillon.h>

static void note(void *user, const tb_event *event) {
    (void)event;
    *(int *)user += 1;
}

int main(void) {
    tb_engine *engine;
    int calls = 0;
    if (strcmp(tb_version(), TB_VERSION) != 0) {
        fprintf(stderr, "the header is of version %s, the library of %s\n", TB_VERSION, tb_version());
        return 1;
    }
    if (tb_engine_create_driven(NULL, &engine) != TB_OK || tb_schedule(engine, 1000000, note, &calls, NULL) != TB_OK ||
        tb_engine_advance(engine, 2000000) != TB_OK || tb_engine_free(engine) != TB_OK || calls != 1) {
        fprintf(stderr, "%s\n", tb_last_error());
        return 1;
    }
    printf("installed: %s\n", tb_version());
    return 0;
}
