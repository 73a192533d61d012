mod by_handle;
