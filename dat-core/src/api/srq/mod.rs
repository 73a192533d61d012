mod post_recv;
