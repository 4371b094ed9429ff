import h5py

print("yes" if h5py.get_config().mpi else "no")
