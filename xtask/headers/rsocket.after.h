#ifdef __cplusplus
extern "C" {
#endif

// Gets or sets the flags of a socket: F_GETFL, or F_SETFL with an int.
//
// Returns the flags or 0, or -1 with errno: EBADF, ENOTSUP for another command.
int rfcntl(int socket, int cmd, ...);

#ifdef __cplusplus
}
#endif
