"""Train the crossbar's tail for any checkpoint, on codes that the checkpoint generates."""
