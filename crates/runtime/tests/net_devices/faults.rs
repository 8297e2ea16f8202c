//! Frames that are damaged or too long, through every device: no frame of the area is lost, no
//! other frame is changed, and the device goes on.
