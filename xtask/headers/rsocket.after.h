#ifdef __cplusplus
extern "C" {
#endif

// Gets or sets the flags of a socket: F_GETFL, or F_SETFL with an int.
//
// Not implemented yet: returns -1 with errno ENOSYS.
int rfcntl(int socket, int cmd, ...);

#ifdef __cplusplus
}
#endif
