/* Makes a pool and a volume in it, writes, flushes, and reads back: once waiting, once by submitting. */
#include <ashlar.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

static int fail(const struct ashlar_error *error)
{
    fprintf(stderr, "hello: %s\n", error->text);
    return 1;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "hello.pool";
    struct ashlar_error error = {0, {0}};
    struct ashlar_volume_options options = ASHLAR_VOLUME_OPTIONS_INIT;
    struct ashlar_pool *pool;
    struct ashlar_volume *volume;
    struct ashlar_queue *queue;
    struct ashlar_completion done;
    char text[] = "hello, world", back[sizeof(text)] = "", again[sizeof(text)] = "";

    options.size_bytes = 1 << 30; /* thin: it takes what is written */
    if (ashlar_pool_create(path, 1 << 30, NULL, 0, &error) < 0 || ashlar_pool_open(path, NULL, 0, &pool, &error) < 0 ||
        ashlar_volume_create(pool, "disk", &options, 0, &error) < 0 ||
        ashlar_volume_open(pool, "disk", 0, &volume, &error) < 0)
        return fail(&error);

    if (ashlar_write(volume, text, sizeof(text), 4096, 0, &error) < 0 || ashlar_flush(volume, 0, &error) < 0 ||
        ashlar_read(volume, back, sizeof(back), 4096, 0, &error) < 0)
        return fail(&error);
    printf("waiting: %s\n", back);

    if (ashlar_queue_new(0, 0, &queue, &error) < 0 ||
        ashlar_submit_read(queue, volume, again, sizeof(again), 4096, 0, again) < 0)
        return fail(&error);
    struct pollfd ready = {ashlar_queue_fd(queue), POLLIN, 0}; /* beside whatever else the program waits for */
    while (ashlar_queue_reap(queue, &done, 1) == 0)
        poll(&ready, 1, -1);
    printf("submitted: %s\n", done.result == 0 ? (char *)done.user : done.text);

    ashlar_queue_free(queue);
    ashlar_volume_close(volume);
    return ashlar_pool_close(pool, &error) < 0 ? fail(&error) : strcmp(back, again) != 0;
}
